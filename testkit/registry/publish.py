"""Publishes intents with the serializers of confluent-kafka: publish.py FORMAT BROKERS TOPIC REGISTRY USER PASSWORD CA_FILE.

Reads one intent per line from standard input, as JSON. The header `case` of each record is the intent's id.
"""

import json
import sys
from datetime import datetime, timezone

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

AVRO = """{"type": "record", "name": "Intent", "namespace": "shop", "fields": [
  {"name": "payload", "type": {"type": "map", "values": "string"}},
  {"name": "intent", "type": {"type": "record", "name": "Meta", "fields": [
    {"name": "id", "type": "string"},
    {"name": "channel", "type": ["null", {"type": "enum", "name": "Channel", "symbols": ["email", "push"]}]}]}},
  {"name": "user_id", "type": "long"},
  {"name": "category", "type": ["null", "string"]},
  {"name": "expires_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]}"""

JSON_SCHEMA = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Intent", "type": "object",
  "properties": {"user_id": {"type": "integer"}, "intent": {"type": "object"}}, "required": ["user_id", "intent"]}"""


def of_avro(client):
    from confluent_kafka.schema_registry.avro import AvroSerializer

    def to_record(intent, _):
        expires_ms = intent.get("expires_at")
        expires = expires_ms and datetime.fromtimestamp(expires_ms / 1000, timezone.utc)
        return {"category": None, **intent, "expires_at": expires}

    return AvroSerializer(client, AVRO, to_record)


def of_json(client):
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    return JSONSerializer(JSON_SCHEMA, client)


def of_protobuf(client):
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="shop/intent.proto", package="shop", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    kinds = descriptor_pb2.FieldDescriptorProto

    def add(message, number, name, kind, label=kinds.LABEL_OPTIONAL, type_name=None):
        message.field.add(number=number, name=name, type=kind, label=label, type_name=type_name)

    file.message_type.add(name="Unused")
    intent = file.message_type.add(name="Intent")
    entry = intent.nested_type.add(name="PayloadEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    add(entry, 1, "key", kinds.TYPE_STRING)
    add(entry, 2, "value", kinds.TYPE_STRING)
    meta = intent.nested_type.add(name="Meta")
    channel = meta.enum_type.add(name="Channel")
    for number, name in enumerate(["none", "email", "push"]):
        channel.value.add(number=number, name=name)
    add(meta, 1, "id", kinds.TYPE_STRING)
    add(meta, 2, "channel", kinds.TYPE_ENUM, type_name=".shop.Intent.Meta.Channel")
    add(intent, 1, "payload", kinds.TYPE_MESSAGE, kinds.LABEL_REPEATED, ".shop.Intent.PayloadEntry")
    add(intent, 2, "intent", kinds.TYPE_MESSAGE, type_name=".shop.Intent.Meta")
    add(intent, 3, "user_id", kinds.TYPE_SINT64)
    add(intent, 4, "category", kinds.TYPE_STRING)
    add(intent, 5, "expires_at", kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    pool = descriptor_pool.Default()
    pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Intent"))
    serializer = ProtobufSerializer(message, client, {"use.deprecated.format": False})

    def serialize(intent, context):
        given = {name: value for name, value in intent.items() if value is not None}
        expires_ms = given.pop("expires_at", None)
        record = json_format.ParseDict(given, message())
        if expires_ms is not None:
            record.expires_at.FromMilliseconds(expires_ms)
        return serializer(record, context)

    return serialize


def main():
    form, brokers, topic, registry, user, password, ca_file = sys.argv[1:]
    client = SchemaRegistryClient(
        {"url": registry, "basic.auth.user.info": f"{user}:{password}", "ssl.ca.location": ca_file}
    )
    serialize = {"avro": of_avro, "json_schema": of_json, "protobuf": of_protobuf}[form](client)
    producer = Producer({"bootstrap.servers": brokers})
    context = SerializationContext(topic, MessageField.VALUE)
    for line in sys.stdin:
        intent = json.loads(line)
        value = serialize(intent, context)
        producer.produce(topic, value, key=str(intent["user_id"]), headers={"case": intent["intent"]["id"]})
    assert producer.flush(60) == 0


main()
