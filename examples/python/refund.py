"""Takes an approved intent back, so that it no longer counts: refund.py INTENT_ID USER_ID"""

import json
import os
import sys

from confluent_kafka import Producer

intent_id, user_id = sys.argv[1:]


def written(error, record):
    if error:
        sys.exit(f"cannot refund {intent_id}: {error}")
    print(f"refunded {intent_id} in {record.topic()}/{record.partition()}")


producer = Producer({
    "bootstrap.servers": os.environ.get("WEIR_KAFKA", "127.0.0.1:9092"),
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
})
refund = {"intent_id": intent_id, "user_id": user_id}
producer.produce(os.environ.get("WEIR_REFUNDS", "send-refunds"), json.dumps(refund), key=user_id, on_delivery=written)
producer.flush()
