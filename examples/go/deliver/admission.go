package main

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	maxAttempts = 5
	maxWait     = time.Minute
	base        = 200 * time.Millisecond
	maxBackoff  = 30 * time.Second
)

// The outcome of a request: ok, permanent (never try again), or temporary.
type outcome string

// outcomeOf returns the outcome of an answer, and its Retry-After or nil.
func outcomeOf(answer *http.Response) (outcome, *time.Duration) {
	switch status := answer.StatusCode; {
	case status < 300:
		return "ok", nil
	case status != 408 && status != 429 && status < 500:
		return "permanent", nil
	}
	seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 32)
	if err != nil {
		return "temporary", nil
	}
	return "temporary", new(time.Duration(seconds) * time.Second)
}

// delay returns the time until the next attempt: Retry-After, else exponential backoff with full jitter. attempt counts
// from 1; retryAfter is nil if the answer had none; chance is random, from 0 to 1.
func delay(attempt int, retryAfter *time.Duration, chance float64) time.Duration {
	if retryAfter != nil {
		return *retryAfter
	}
	return time.Duration(chance * min(float64(maxBackoff), float64(base)*float64(uint64(1)<<(attempt-1))))
}

// repeat calls attemptOnce, which returns an outcome and Retry-After, and returns the last outcome.
func repeat(attemptOnce func() (outcome, *time.Duration)) outcome {
	for attempt, waited := 1, time.Duration(0); ; attempt++ {
		result, retryAfter := attemptOnce()
		pause := delay(attempt, retryAfter, rand.Float64())
		if result != "temporary" || attempt == maxAttempts || waited+pause > maxWait {
			return result
		}
		time.Sleep(pause)
		waited += pause
	}
}
