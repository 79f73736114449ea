"""Publishes an intent: publish.py INTENT_ID USER_ID"""

import json
import os
import sys

from confluent_kafka import Producer

intent_id, user_id = sys.argv[1:]
intent = {"id": intent_id, "user_id": user_id, "channel": "push", "campaign": "spring", "payload": {"text": "Hello"}}


def written(error, record):
    if error:
        sys.exit(f"cannot publish {intent_id}: {error}")
    print(f"published {intent_id} to {record.topic()}/{record.partition()}")


producer = Producer({
    "bootstrap.servers": os.environ.get("WEIR_KAFKA", "127.0.0.1:9092"),
    # Kafka writes the record once, even if the client has to send it again.
    "enable.idempotence": True,
    # The partitioner of Java's client. librdkafka's own default would put the same user into another partition.
    "partitioner": "murmur2_random",
})
# weir decides the intents of a partition in order: the key keeps a user's intents in one partition.
producer.produce(os.environ.get("WEIR_INTENTS", "send-intents"), json.dumps(intent), key=user_id, on_delivery=written)
producer.flush()
