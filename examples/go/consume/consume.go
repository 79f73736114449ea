// Reads approved intents and the decision on each, until Ctrl-C: consume
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(cmp.Or(os.Getenv("WEIR_KAFKA"), "127.0.0.1:9092"), ",")...),
		kgo.ConsumerGroup(cmp.Or(os.Getenv("WEIR_GROUP"), "delivery")),
		kgo.ConsumeTopics(cmp.Or(os.Getenv("WEIR_APPROVED"), "send-approved")),
		// weir writes in transactions. Other readers would also see what weir has taken back.
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	for fetches := client.PollFetches(ctx); ctx.Err() == nil; fetches = client.PollFetches(ctx) {
		if err := fetches.Err(); err != nil {
			log.Fatalf("cannot read: %v", err)
		}
		fetches.EachRecord(deliver)
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			log.Fatalf("cannot commit: %v", err)
		}
	}
}

func deliver(record *kgo.Record) {
	var intent struct{ ID string }
	var decision map[string]any
	if err := json.Unmarshal(record.Value, &intent); err != nil {
		log.Fatal(err)
	}
	for _, header := range record.Headers { // the last header of this name is weir's
		if header.Key == "weir-decision" {
			if err := json.Unmarshal(header.Value, &decision); err != nil {
				log.Fatal(err)
			}
		}
	}
	// Deliver the message here. After a crash a record is read again: recognise duplicates by the intent's id.
	fmt.Println(intent.ID, decision["verdict"], decision["decided_at"])
}
