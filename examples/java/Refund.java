// Takes an approved intent back, so that it no longer counts: Refund INTENT_ID USER_ID
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

class Refund {
    public static void main(String[] args) throws Exception {
        var env = System.getenv();
        var refund = new ObjectMapper().writeValueAsString(Map.of("intent_id", args[0], "user_id", args[1]));
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", env.getOrDefault("WEIR_KAFKA", "127.0.0.1:9092"),
                "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            var topic = env.getOrDefault("WEIR_REFUNDS", "send-refunds");
            var written = producer.send(new ProducerRecord<>(topic, args[1], refund)).get();
            System.out.println("refunded " + args[0] + " in " + written.topic() + "/" + written.partition());
        }
    }
}
