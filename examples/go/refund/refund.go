// Takes an approved intent back, so that it no longer counts: refund INTENT_ID USER_ID
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
	refund, err := json.Marshal(map[string]string{"intent_id": id, "user_id": user})
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(cmp.Or(os.Getenv("WEIR_KAFKA"), "127.0.0.1:9092"), ",")...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	record := &kgo.Record{Topic: cmp.Or(os.Getenv("WEIR_REFUNDS"), "send-refunds"), Key: []byte(user), Value: refund}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		log.Fatalf("cannot refund %s: %v", id, err)
	}
	fmt.Printf("refunded %s in %s/%d\n", id, record.Topic, record.Partition)
}
