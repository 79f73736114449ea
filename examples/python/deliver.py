"""Delivers a message to a URL once weir admits it: deliver.py SERVICE URL MESSAGE"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request

import admission

service, url, message = sys.argv[1:]
admissions = os.environ.get("WEIR_HTTP", "http://127.0.0.1:8080") + f"/v1/services/{service}/admissions"
token = {"Authorization": "Bearer " + os.environ.get("WEIR_TOKEN", "")}


def call(method, url, body, headers):
    """The outcome, Retry-After in seconds or None, and the body."""
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return "ok", None, answer.read()
    except urllib.error.HTTPError as error:
        after = error.headers.get("Retry-After", "")
        return admission.outcome(error.code), int(after) if after.isdigit() else None, b""
    except (OSError, http.client.HTTPException):
        return "temporary", None, b""


def attempt_once():
    outcome, retry_after, body = call("POST", admissions, "{}", token)
    if outcome != "ok":
        return outcome, retry_after
    admitted = admissions + "/" + json.loads(body)["id"]
    start = time.monotonic()
    outcome, retry_after, _ = call("POST", url, message, {})
    report = {"took_ms": round((time.monotonic() - start) * 1000), "outcome": outcome}
    # If this report is lost, the admission ends at the timeout that the service has registered.
    call("DELETE", admitted, json.dumps(report), token)
    return outcome, retry_after


outcome = admission.repeat(attempt_once)
print(outcome)  # ok; permanent: never try again; temporary: write the record to the topic of retries
sys.exit(outcome != "ok")
