// Delivers a message to a URL once weir admits it: Deliver SERVICE URL MESSAGE
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

class Deliver {
    static final HttpClient CLIENT = HttpClient.newHttpClient();
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, String> ENV = System.getenv();

    static Admission.Result call(String method, String url, String body, String... headers) throws InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(10))
                .method(method, HttpRequest.BodyPublishers.ofString(body)).header("Content-Type", "application/json");
        if (headers.length > 0) {
            request.headers(headers);
        }
        try {
            return Admission.Result.of(CLIENT.send(request.build(), BodyHandlers.ofString()));
        } catch (IOException e) {
            return new Admission.Result(Admission.Outcome.temporary, Optional.empty(), "");
        }
    }

    static Admission.Result attemptOnce(String admissions, String url, String message) throws Exception {
        String[] token = {"Authorization", "Bearer " + ENV.getOrDefault("WEIR_TOKEN", "")};
        var admitted = call("POST", admissions, "{}", token);
        if (admitted.outcome() != Admission.Outcome.ok) {
            return admitted;
        }
        var admission = admissions + "/" + JSON.readTree(admitted.body()).get("id").asText();
        var start = System.nanoTime();
        var delivered = call("POST", url, message);
        var tookMs = Duration.ofNanos(System.nanoTime() - start).toMillis();
        var report = JSON.writeValueAsString(Map.of("took_ms", tookMs, "outcome", delivered.outcome()));
        // If this report is lost, the admission ends at the timeout that the service has registered.
        call("DELETE", admission, report, token);
        return delivered;
    }

    public static void main(String[] args) throws Exception {
        var weir = ENV.getOrDefault("WEIR_HTTP", "http://127.0.0.1:8080");
        var admissions = weir + "/v1/services/" + args[0] + "/admissions";
        var outcome = Admission.repeat(() -> attemptOnce(admissions, args[1], args[2]));
        // ok; permanent: never try again; temporary: write the record to the topic of retries
        System.out.println(outcome);
        System.exit(outcome == Admission.Outcome.ok ? 0 : 1);
    }
}
