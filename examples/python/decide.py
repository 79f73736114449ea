"""Asks weir for a decision on one intent, which the caller then sends: decide.py INTENT_ID USER_ID"""

import json
import os
import sys
import urllib.error
import urllib.request

intent_id, user_id = sys.argv[1:]
intent = {"id": intent_id, "user_id": user_id, "channel": "push", "campaign": "spring"}

request = urllib.request.Request(
    os.environ.get("WEIR_HTTP", "http://127.0.0.1:8080") + "/v1/decisions",
    data=json.dumps(intent).encode(),
    headers={"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("WEIR_TOKEN", "")},
)
try:
    with urllib.request.urlopen(request, timeout=10) as answer:
        decision = json.load(answer)
except urllib.error.HTTPError as error:
    # After 503, 504 or a broken connection, ask again with the same id: weir records an intent once.
    sys.exit(f"no decision on {intent_id}: {error.code} {error.read().decode()}")
print(intent_id, decision["verdict"], decision.get("reason") or "", decision.get("eligible_at") or "")
