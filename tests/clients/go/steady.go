// A producer that goes on until SIGTERM, for runs with faults: one JSON line per record when its outcome is known.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type outcome struct {
	Number    int
	Partition int32
	Offset    int64
	Error     string
}

// steady TOPIC PARTITIONS RATE SEED: `go.0`, `go.1`, … to partitions by chance, idempotent as franz-go is by default.
func steady(_ context.Context, bootstrap string, arguments []string) (any, error) {
	var numbers [3]int64
	for index, text := range arguments[1:] {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers[index] = number
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond), kgo.MetadataMaxAge(5*time.Second), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.ProduceRequestTimeout(4*time.Second), kgo.RequestTimeoutOverhead(time.Second))
	if err != nil {
		return nil, err
	}
	ended, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	lines, lock := json.NewEncoder(os.Stdout), sync.Mutex{}
	dice := rand.New(rand.NewSource(numbers[2]))
	for number := 0; ended.Err() == nil; number++ {
		sent := number
		record := &kgo.Record{Topic: arguments[0], Partition: dice.Int31n(int32(numbers[0])), Value: fmt.Appendf(nil, "go.%d", number)}
		client.Produce(context.Background(), record, func(told *kgo.Record, err error) {
			line := outcome{sent, told.Partition, told.Offset, ""}
			if err != nil {
				line.Error = err.Error()
			}
			lock.Lock()
			defer lock.Unlock()
			_ = lines.Encode(line)
		})
		time.Sleep(time.Duration(dice.Float64() * 2 / float64(numbers[1]) * float64(time.Second)))
	}
	return nil, client.Flush(context.Background())
}
