// A franz-go client for the tests: one command per run, one JSON value on standard output, exit code 1 with the reason
// on standard error. This file produces and consumes by partition and administers topics; groups and transactions have
// files of their own.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type command func(ctx context.Context, bootstrap string, arguments []string) (any, error)

var commands = map[string]command{
	"produce":  produce,
	"batches":  batches,
	"consume":  consume,
	"admin":    admin,
	"errors":   refusals,
	"member":   member,
	"look":     look,
	"forget":   forget,
	"transact": transact,
	"copy":     copyAll,
	"steady":   steady,
	"follow":   follow,
	"login":    login,
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	told, err := commands[os.Args[1]](ctx, os.Args[2], os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if told == nil {
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		os.Exit(1)
	}
}

// With CLIENT_CA, the path of an authority's certificate, the client speaks TLS; with CLIENT_CERTIFICATE, the path of a
// certificate and its key, it shows that. With CLIENT_SASL, a mechanism, a user and a password, it logs in.
func connect(bootstrap string, options ...kgo.Opt) (*kgo.Client, error) {
	if path := os.Getenv("CLIENT_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(pem)
		settings := &tls.Config{RootCAs: trusted}
		if own := os.Getenv("CLIENT_CERTIFICATE"); own != "" {
			certificate, err := tls.LoadX509KeyPair(own, own)
			if err != nil {
				return nil, err
			}
			settings.Certificates = []tls.Certificate{certificate}
		}
		options = append(options, kgo.DialTLSConfig(settings))
	}
	if words := strings.Fields(os.Getenv("CLIENT_SASL")); len(words) == 3 {
		chosen, err := mechanism(words[0], words[1], words[2], false)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(chosen))
	}
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
}

// produce TOPIC CODEC COUNT: records with keys and headers to partition 0, idempotent as franz-go is by default; tells
// their offsets.
func produce(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	topic, codec := arguments[0], codecs[arguments[1]]
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return nil, err
	}
	client, err := connect(bootstrap, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for number := 0; number < count; number++ {
		records = append(records, &kgo.Record{
			Topic:     topic,
			Key:       []byte("key"),
			Value:     []byte(fmt.Sprintf("a value that compresses, a value that compresses %d", number)),
			Headers:   []kgo.RecordHeader{{Key: "source", Value: []byte("franz-go")}},
			Timestamp: time.UnixMilli(1_600_000_000_000 + int64(number)),
		})
	}
	offsets := []int64{}
	for _, result := range client.ProduceSync(ctx, records...) {
		if result.Err != nil {
			return nil, result.Err
		}
		offsets = append(offsets, result.Record.Offset)
	}
	return offsets, nil
}

// batches TOPIC CODEC BATCH…: sends batches of values, which are separated by "|", one after the other; tells the offset or
// the error of each record.
func batches(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	client, err := connect(bootstrap, kgo.ProducerBatchCompression(codecs[arguments[1]]), kgo.ProducerLinger(time.Second))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	told := []string{}
	for _, batch := range arguments[2:] {
		var records []*kgo.Record
		for _, value := range strings.Split(batch, "|") {
			records = append(records, &kgo.Record{Topic: arguments[0], Value: []byte(value)})
		}
		results := map[*kgo.Record]string{}
		for _, result := range client.ProduceSync(ctx, records...) {
			results[result.Record] = strconv.FormatInt(result.Record.Offset, 10)
			if result.Err != nil {
				results[result.Record] = name(result.Err)
			}
		}
		for _, record := range records {
			told = append(told, results[record])
		}
	}
	return told, nil
}

type read struct {
	Offset    int64
	Timestamp int64
	Key       string
	Value     string
	Headers   []string
}

// consume TOPIC OFFSET COUNT: reads partition 0 from an offset.
func consume(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	offset, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil {
		return nil, err
	}
	count, err := strconv.Atoi(arguments[2])
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{arguments[0]: {0: kgo.NewOffset().At(offset)}}
	client, err := connect(bootstrap, kgo.ConsumePartitions(from))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []read{}
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			one := read{record.Offset, record.Timestamp.UnixMilli(), string(record.Key), string(record.Value), nil}
			for _, header := range record.Headers {
				one.Headers = append(one.Headers, header.Key+"="+string(header.Value))
			}
			found = append(found, one)
		})
	}
	return found, nil
}

// admin TOPIC: creates, describes, alters, lists, deletes; tells what it saw.
func admin(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	topic := arguments[0]
	client, err := connect(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "123456"
	created, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	if err != nil {
		return nil, err
	}
	limit := "5000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, topic)
	if err != nil || altered[0].Err != nil {
		return nil, errors.Join(err, altered[0].Err)
	}
	if grown, err := admin.CreatePartitions(ctx, 1, topic); err != nil || grown[topic].Err != nil {
		return nil, errors.Join(err, grown[topic].Err)
	}
	told := map[string]any{"id": created.ID.String(), "partitions": created.NumPartitions}
	for told["max.message.bytes"] != limit || told["partitions"] != 3 {
		configs, err := admin.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			return nil, err
		}
		for _, config := range configs[0].Configs {
			told[config.Key] = config.MaybeValue()
		}
		details, err := admin.ListTopics(ctx, topic)
		if err != nil {
			return nil, err
		}
		told["partitions"] = len(details[topic].Partitions)
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	told["ends"] = len(ends[topic])
	cluster, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	told["brokers"], told["controller"] = cluster.Brokers.NodeIDs(), cluster.Controller
	deleted, err := admin.DeleteTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	told["deleted"] = deleted[topic].Err == nil
	return told, nil
}

// refusals TOPIC: what must be refused, with the names of the errors. TOPIC exists.
func refusals(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	topic := arguments[0]
	client, err := connect(bootstrap, kgo.UnknownTopicRetries(0))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	_, again := admin.CreateTopic(ctx, 1, 1, nil, topic)
	_, spelled := admin.CreateTopic(ctx, 1, 1, nil, "no good name")
	gone, err := admin.DeleteTopics(ctx, topic+"-gone")
	if err != nil {
		return nil, err
	}
	unknown := client.ProduceSync(ctx, &kgo.Record{Topic: topic + "-gone", Value: []byte("x")}).FirstErr()
	large := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 900_000)}).FirstErr()
	return map[string]string{
		"created again": name(again),
		"bad name":      name(spelled),
		"deleted":       name(gone[topic+"-gone"].Err),
		"unknown":       name(unknown),
		"too large":     name(large),
	}, nil
}

// name of an error of the protocol; other errors, and none, in their own words.
func name(err error) string {
	var refused *kerr.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return fmt.Sprint(err)
}
