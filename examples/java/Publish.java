// Publishes an intent: Publish INTENT_ID USER_ID
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

class Publish {
    public static void main(String[] args) throws Exception {
        var env = System.getenv();
        var intent = new ObjectMapper().writeValueAsString(Map.of(
                "id", args[0], "user_id", args[1], "channel", "push", "campaign", "spring", "payload", Map.of("text", "Hello")));
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", env.getOrDefault("WEIR_KAFKA", "127.0.0.1:9092"),
                // Kafka writes the record once, even if the client has to send it again.
                "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            // weir decides the intents of a partition in order: the key keeps a user's intents in one partition.
            var topic = env.getOrDefault("WEIR_INTENTS", "send-intents");
            var written = producer.send(new ProducerRecord<>(topic, args[1], intent)).get();
            System.out.println("published " + args[0] + " to " + written.topic() + "/" + written.partition());
        }
    }
}
