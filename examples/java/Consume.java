// Reads approved intents and the decision on each, until Ctrl-C: Consume
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

class Consume {
    public static void main(String[] args) throws Exception {
        var env = System.getenv();
        var json = new ObjectMapper();
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", env.getOrDefault("WEIR_KAFKA", "127.0.0.1:9092"),
                "group.id", env.getOrDefault("WEIR_GROUP", "delivery"),
                // weir writes in transactions. Other readers would also see what weir has taken back.
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        var main = Thread.currentThread();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.wakeup();
                try {
                    main.join();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }));
            consumer.subscribe(List.of(env.getOrDefault("WEIR_APPROVED", "send-approved")));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    var intent = json.readTree(record.value());
                    // The last header of this name is weir's.
                    var decision = json.readTree(record.headers().lastHeader("weir-decision").value());
                    // Deliver the message here. After a crash a record is read again: recognise duplicates by the intent's id.
                    System.out.println(intent.get("id").asText() + " " + decision.get("verdict").asText()
                            + " " + decision.get("decided_at").asText());
                }
                consumer.commitSync();
            }
        } catch (WakeupException e) {
            // Ctrl-C: the consumer has left its group.
        }
    }
}
