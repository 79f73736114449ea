// Asks weir for a decision on one intent, which the caller then sends: Decide INTENT_ID USER_ID
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Map;

class Decide {
    public static void main(String[] args) throws Exception {
        var env = System.getenv();
        var json = new ObjectMapper();
        var intent = Map.of("id", args[0], "user_id", args[1], "channel", "push", "campaign", "spring");
        var request = HttpRequest
                .newBuilder(URI.create(env.getOrDefault("WEIR_HTTP", "http://127.0.0.1:8080") + "/v1/decisions"))
                .header("Content-Type", "application/json")
                .header("Authorization", "Bearer " + env.getOrDefault("WEIR_TOKEN", ""))
                .timeout(Duration.ofSeconds(10))
                .POST(HttpRequest.BodyPublishers.ofString(json.writeValueAsString(intent)))
                .build();
        var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            // After 503, 504 or a broken connection, ask again with the same id: weir records an intent once.
            System.err.println("no decision on " + args[0] + ": " + answer.statusCode() + " " + answer.body());
            System.exit(1);
        }
        var decision = json.readTree(answer.body());
        System.out.println(args[0] + " " + decision.get("verdict").asText()
                + " " + decision.path("reason").asText("") + " " + decision.path("eligible_at").asText(""));
    }
}
