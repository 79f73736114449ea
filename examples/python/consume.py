"""Reads approved intents and the decision on each, until Ctrl-C: consume.py"""

import json
import os
import sys

from confluent_kafka import Consumer

consumer = Consumer({
    "bootstrap.servers": os.environ.get("WEIR_KAFKA", "127.0.0.1:9092"),
    "group.id": os.environ.get("WEIR_GROUP", "delivery"),
    # weir writes in transactions. Other readers would also see what weir has taken back.
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
})
consumer.subscribe([os.environ.get("WEIR_APPROVED", "send-approved")])
try:
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if record.error():
            sys.exit(f"cannot read: {record.error()}")
        intent = json.loads(record.value())
        # The last header of this name is weir's.
        decision = json.loads(dict(record.headers())["weir-decision"])
        # Deliver the message here. After a crash a record is read again: recognise duplicates by the intent's id.
        print(intent["id"], decision["verdict"], decision["decided_at"], flush=True)
        consumer.commit(record, asynchronous=False)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
