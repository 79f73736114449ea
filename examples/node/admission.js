// When to try again: permanent: never; temporary: after Retry-After, else by exponential backoff with full jitter.
import { setTimeout as sleep } from 'node:timers/promises'

const MAX_ATTEMPTS = 5
const MAX_WAIT_S = 60
const BASE_S = 0.2
const MAX_BACKOFF_S = 30

/** The kind of an HTTP status. */
export function outcomeOf (status) {
  if (status < 300) return 'ok'
  return [408, 429].includes(status) || status >= 500 ? 'temporary' : 'permanent'
}

/** Seconds until the next attempt. `attempt` counts from 1; `chance` is random, from 0 to 1. */
export function delay (attempt, retryAfter, chance) {
  return retryAfter ?? chance * Math.min(MAX_BACKOFF_S, BASE_S * 2 ** (attempt - 1))
}

/** Calls `attemptOnce`, which returns an outcome and perhaps Retry-After in seconds; returns the last outcome. */
export async function repeat (attemptOnce) {
  for (let attempt = 1, waited = 0; ; attempt++) {
    const { outcome, retryAfter } = await attemptOnce()
    const pause = delay(attempt, retryAfter, Math.random())
    if (outcome !== 'temporary' || attempt === MAX_ATTEMPTS || waited + pause > MAX_WAIT_S) return outcome
    await sleep(pause * 1000)
    waited += pause
  }
}
