// Asks weir for a decision on one intent, which the caller then sends: decide INTENT_ID USER_ID
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	id, user := os.Args[1], os.Args[2]
	intent, err := json.Marshal(map[string]string{"id": id, "user_id": user, "channel": "push", "campaign": "spring"})
	if err != nil {
		log.Fatal(err)
	}
	weir := cmp.Or(os.Getenv("WEIR_HTTP"), "http://127.0.0.1:8080")
	request, err := http.NewRequest("POST", weir+"/v1/decisions", bytes.NewReader(intent))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("WEIR_TOKEN"))
	// After 503, 504 or a broken connection, ask again with the same id: weir records an intent once.
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("no decision on %s: %d %s", id, answer.StatusCode, body)
	}
	var decision struct {
		Verdict, Reason string
		EligibleAt      string `json:"eligible_at"`
	}
	if err := json.Unmarshal(body, &decision); err != nil {
		log.Fatal(err)
	}
	fmt.Println(id, decision.Verdict, decision.Reason, decision.EligibleAt)
}
