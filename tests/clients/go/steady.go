// Clients that go on until SIGTERM, for runs with faults: a producer, with one JSON line per record when its outcome is
// known, and a reader, with one per record or error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type outcome struct {
	Number    int
	Partition int32
	Offset    int64
	Error     string
	Hard      bool
}

// hard: an error after which it is not enough to try again.
func hard(err error) bool {
	var refused *kerr.Error
	return errors.As(err, &refused) && !refused.Retriable || errors.Is(err, kgo.ErrClientClosed)
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
	client, err := connect(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()),
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
			line := outcome{sent, told.Partition, told.Offset, "", false}
			if err != nil {
				line.Error, line.Hard = err.Error(), hard(err)
			}
			lock.Lock()
			defer lock.Unlock()
			_ = lines.Encode(line)
		})
		time.Sleep(time.Duration(dice.Float64() * 2 / float64(numbers[1]) * float64(time.Second)))
	}
	return nil, client.Flush(context.Background())
}

type found struct {
	Partition int32
	Offset    int64
	Value     string
	Error     string
	Hard      bool
}

// follow TOPIC PARTITIONS: what is in all partitions, from the beginning and as it comes.
func follow(_ context.Context, bootstrap string, arguments []string) (any, error) {
	partitions, err := strconv.ParseInt(arguments[1], 10, 32)
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for partition := int32(0); partition < int32(partitions); partition++ {
		from[partition] = kgo.NewOffset().At(0)
	}
	client, err := connect(bootstrap,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{arguments[0]: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMaxAge(5*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.RequestTimeoutOverhead(5*time.Second))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ended, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	lines := json.NewEncoder(os.Stdout)
	for ended.Err() == nil {
		fetches := client.PollFetches(ended)
		fetches.EachError(func(_ string, partition int32, err error) {
			if ended.Err() == nil {
				_ = lines.Encode(found{partition, -1, "", err.Error(), hard(err)})
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			_ = lines.Encode(found{record.Partition, record.Offset, string(record.Value), "", false})
		})
	}
	return nil, nil
}
