"""When to try again: permanent: never; temporary: after Retry-After, else by exponential backoff with full jitter."""

import random
import time

MAX_ATTEMPTS, MAX_WAIT_S = 5, 60
BASE_S, MAX_BACKOFF_S = 0.2, 30


def outcome(status):
    """The kind of an HTTP status."""
    if status < 300:
        return "ok"
    return "temporary" if status in (408, 429) or status >= 500 else "permanent"


def delay(attempt, retry_after, chance):
    """Seconds until the next attempt. `attempt` counts from 1; `chance` is random, from 0 to 1."""
    return retry_after if retry_after is not None else chance * min(MAX_BACKOFF_S, BASE_S * 2 ** (attempt - 1))


def repeat(attempt_once):
    """Calls `attempt_once`, which returns an outcome and Retry-After in seconds or None; returns the last outcome."""
    waited = 0
    for attempt in range(1, MAX_ATTEMPTS + 1):
        result, retry_after = attempt_once()
        pause = delay(attempt, retry_after, random.random())
        if result != "temporary" or attempt == MAX_ATTEMPTS or waited + pause > MAX_WAIT_S:
            return result
        time.sleep(pause)
        waited += pause
