import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.Callable;

/** When to try again: permanent: never; temporary: after Retry-After, else by exponential backoff with full jitter. */
class Admission {
    static final int MAX_ATTEMPTS = 5;
    static final Duration MAX_WAIT = Duration.ofMinutes(1);
    static final Duration BASE = Duration.ofMillis(200);
    static final Duration MAX_BACKOFF = Duration.ofSeconds(30);

    enum Outcome { ok, permanent, temporary }

    /** What became of a request, and its Retry-After. */
    record Result(Outcome outcome, Optional<Duration> retryAfter, String body) {
        static Result of(HttpResponse<String> answer) {
            int status = answer.statusCode();
            var temporary = status == 408 || status == 429 || status >= 500;
            var after = answer.headers().firstValue("Retry-After").filter(text -> text.matches("\\d{1,9}"));
            var outcome = status < 300 ? Outcome.ok : temporary ? Outcome.temporary : Outcome.permanent;
            return new Result(outcome, after.map(text -> Duration.ofSeconds(Long.parseLong(text))), answer.body());
        }
    }

    /** The time until the next attempt. `attempt` counts from 1; `chance` is random, from 0 to 1. */
    static Duration delay(int attempt, Optional<Duration> retryAfter, double chance) {
        var backoff = Math.min(MAX_BACKOFF.toMillis(), BASE.toMillis() * Math.pow(2, attempt - 1));
        return retryAfter.orElse(Duration.ofMillis((long) (chance * backoff)));
    }

    /** Calls `attemptOnce` as often as the rule allows, and returns its last outcome. */
    static Outcome repeat(Callable<Result> attemptOnce) throws Exception {
        var waited = Duration.ZERO;
        for (int attempt = 1;; attempt++) {
            var result = attemptOnce.call();
            var pause = delay(attempt, result.retryAfter(), Math.random());
            if (result.outcome() != Outcome.temporary || attempt == MAX_ATTEMPTS || waited.plus(pause).compareTo(MAX_WAIT) > 0) {
                return result.outcome();
            }
            Thread.sleep(pause.toMillis());
            waited = waited.plus(pause);
        }
    }
}
