// Delivers a message to a URL once weir admits it: deliver SERVICE URL MESSAGE
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

var client = http.Client{Timeout: 10 * time.Second}

// call returns the outcome, Retry-After or nil, and the body.
func call(method, url, body string, header http.Header) (outcome, *time.Duration, []byte) {
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header = header
	answer, err := client.Do(request)
	if err != nil {
		return "temporary", nil, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	result, retryAfter := outcomeOf(answer)
	return result, retryAfter, text
}

func main() {
	service, url, message := os.Args[1], os.Args[2], os.Args[3]
	admissions := cmp.Or(os.Getenv("WEIR_HTTP"), "http://127.0.0.1:8080") + "/v1/services/" + service + "/admissions"
	plain := http.Header{"Content-Type": {"application/json"}}
	authorized := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + os.Getenv("WEIR_TOKEN")}}
	result := repeat(func() (outcome, *time.Duration) {
		result, retryAfter, body := call("POST", admissions, "{}", authorized)
		if result != "ok" {
			return result, retryAfter
		}
		var admitted struct{ ID string }
		if err := json.Unmarshal(body, &admitted); err != nil {
			log.Fatal(err)
		}
		start := time.Now()
		result, retryAfter, _ = call("POST", url, message, plain)
		report := fmt.Sprintf(`{"took_ms": %d, "outcome": %q}`, time.Since(start).Milliseconds(), result)
		// If this report is lost, the admission ends at the timeout that the service has registered.
		call("DELETE", admissions+"/"+admitted.ID, report, authorized)
		return result, retryAfter
	})
	fmt.Println(result) // ok; permanent: never try again; temporary: write the record to the topic of retries
	if result != "ok" {
		os.Exit(1)
	}
}
