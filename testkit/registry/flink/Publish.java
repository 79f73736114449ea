import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Publishes intents with Flink's serializer, which asks the registry by Confluent's client for Java and writes by Avro's library
 * for Java: java Publish.java BROKERS TOPIC REGISTRY USER PASSWORD CA_FILE.
 *
 * <p>Reads one intent per line from standard input, as JSON. The header "case" of each record is the intent's id.
 */
public class Publish {
  static final Schema INTENT = new Schema.Parser().parse("""
      {"type": "record", "name": "Intent", "namespace": "shop", "fields": [
        {"name": "payload", "type": {"type": "map", "values": "string"}},
        {"name": "intent", "type": {"type": "record", "name": "Meta", "fields": [
          {"name": "id", "type": "string"},
          {"name": "channel", "type": ["null", {"type": "enum", "name": "Channel", "symbols": ["email", "push"]}]}]}},
        {"name": "user_id", "type": "long"},
        {"name": "category", "type": ["null", "string"]},
        {"name": "expires_at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}]}
      """);

  static GenericRecord recordOf(JsonNode intent) {
    Schema metaType = INTENT.getField("intent").schema();
    JsonNode given = intent.get("intent");
    GenericRecord meta = new GenericData.Record(metaType);
    meta.put("id", given.get("id").asText());
    Schema channel = metaType.getField("channel").schema().getTypes().get(1);
    meta.put("channel", new GenericData.EnumSymbol(channel, given.get("channel").asText()));
    Map<String, String> payload = new HashMap<>();
    intent.get("payload").fields().forEachRemaining(entry -> payload.put(entry.getKey(), entry.getValue().asText()));
    GenericRecord record = new GenericData.Record(INTENT);
    record.put("payload", payload);
    record.put("intent", meta);
    record.put("user_id", intent.get("user_id").asLong());
    record.put("category", intent.has("category") ? intent.get("category").asText() : null);
    record.put("expires_at", intent.has("expires_at") ? (Long) (intent.get("expires_at").asLong() * 1000) : null);
    return record;
  }

  public static void main(String[] args) throws Exception {
    String brokers = args[0], topic = args[1], registry = args[2], user = args[3], password = args[4], authority = args[5];
    Map<String, String> client = Map.of(
        "basic.auth.credentials.source", "USER_INFO",
        "basic.auth.user.info", user + ":" + password,
        "schema.registry.ssl.truststore.type", "PEM",
        "schema.registry.ssl.truststore.location", authority);
    var serializer =
        ConfluentRegistryAvroSerializationSchema.forGeneric(topic + "-value", INTENT, registry, client);
    var mapper = new ObjectMapper();
    try (var producer = new KafkaProducer<>(
            Map.<String, Object>of("bootstrap.servers", brokers), new StringSerializer(), new ByteArraySerializer());
        var lines = new Scanner(System.in, StandardCharsets.UTF_8)) {
      while (lines.hasNextLine()) {
        JsonNode intent = mapper.readTree(lines.nextLine());
        var name = new RecordHeader("case", intent.get("intent").get("id").asText().getBytes(StandardCharsets.UTF_8));
        byte[] value = serializer.serialize(recordOf(intent));
        producer.send(new ProducerRecord<>(topic, null, intent.get("user_id").asText(), value, List.of(name))).get();
      }
    }
  }
}
