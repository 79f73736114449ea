// Publishes an intent: publish INTENT_ID USER_ID
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	id, user := os.Args[1], os.Args[2]
	intent, err := json.Marshal(map[string]any{
		"id": id, "user_id": user, "channel": "push", "campaign": "spring", "payload": map[string]string{"text": "Hello"},
	})
	if err != nil {
		log.Fatal(err)
	}
	// The client is idempotent unless told otherwise: Kafka writes the record once, even if the client has to send it
	// again. It partitions by key as Java's client does.
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(cmp.Or(os.Getenv("WEIR_KAFKA"), "127.0.0.1:9092"), ",")...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// weir decides the intents of a partition in order: the key keeps a user's intents in one partition.
	record := &kgo.Record{Topic: cmp.Or(os.Getenv("WEIR_INTENTS"), "send-intents"), Key: []byte(user), Value: intent}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		log.Fatalf("cannot publish %s: %v", id, err)
	}
	fmt.Printf("published %s to %s/%d\n", id, record.Topic, record.Partition)
}
