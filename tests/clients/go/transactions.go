// Transactions: a producer whose transactions end in both ways, kadm's look at an open one, and a copy from topic to
// topic by two members of a group, each record once.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transact TOPIC: one transaction that commits, one that aborts, and one that kadm looks at while it is open, and which
// then commits. The transactional id is the topic's name.
func transact(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	topic := arguments[0]
	client, err := connect(bootstrap, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	begin := func(values ...string) error {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		for _, value := range values {
			if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(begin("committed 0", "committed 1"), client.EndTransaction(ctx, kgo.TryCommit)); err != nil {
		return nil, err
	}
	if err := errors.Join(begin("aborted"), client.EndTransaction(ctx, kgo.TryAbort)); err != nil {
		return nil, err
	}
	if err := begin("committed 2"); err != nil {
		return nil, err
	}
	told, err := lookAtTransaction(ctx, kadm.NewClient(client), topic)
	return told, errors.Join(err, client.EndTransaction(ctx, kgo.TryCommit))
}

func lookAtTransaction(ctx context.Context, admin *kadm.Client, topic string) (any, error) {
	listed, err := admin.ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeTransactions(ctx, topic)
	if err != nil {
		return nil, err
	}
	one := described[topic]
	var places kadm.TopicsSet
	places.Add(topic, 0)
	producers, err := admin.DescribeProducers(ctx, places)
	if err != nil {
		return nil, err
	}
	active := producers[topic].Partitions[0].ActiveProducers.Sorted()
	if len(active) != 1 {
		return nil, fmt.Errorf("%d producers", len(active))
	}
	return map[string]any{
		"listed":        listed[topic].State,
		"described":     one.State,
		"partitions":    one.Topics[topic],
		"same producer": one.ProducerID == active[0].ProducerID && one.ProducerEpoch == active[0].ProducerEpoch,
		"begins at":     active[0].CurrentTxnStartOffset,
	}, nil
}

// copyAll INPUT OUTPUT GROUP COUNT: two members copy until COUNT records are committed; the first goes on after its first
// transaction when the second has partitions too. Every third transaction is aborted by intention. Tells how many records
// each of them committed, and how many transactions were aborted.
func copyAll(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	wanted, err := strconv.ParseInt(arguments[3], 10, 64)
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	var copied [2]atomic.Int64
	var aborted atomic.Int64
	started, joined := make(chan struct{}), make(chan struct{})
	copier := func(number int, assigned func(), afterFirst func()) error {
		defer done()
		session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(arguments[2]),
			kgo.TransactionalID(fmt.Sprintf("%s-%d", arguments[2], number)), kgo.ConsumeTopics(arguments[0]),
			kgo.DefaultProduceTopic(arguments[1]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) {
				if len(gained) > 0 {
					assigned()
				}
			}))
		if err != nil {
			return err
		}
		defer session.Close()
		for turn := 1; copied[0].Load()+copied[1].Load() < wanted; turn++ {
			count, committed, err := copySome(ctx, session, turn%3 != 0)
			switch {
			case errors.Is(err, context.Canceled): // the other has copied the last record
				return nil
			case err != nil:
				return err
			case committed:
				copied[number].Add(count)
			default:
				aborted.Add(1)
			}
			if turn == 1 {
				afterFirst()
			}
		}
		return nil
	}
	first := make(chan error, 1)
	go func() {
		first <- copier(0, func() {}, func() {
			close(started)
			wait(ctx, joined)
		})
	}()
	wait(ctx, started)
	err = errors.Join(copier(1, sync.OnceFunc(func() { close(joined) }), func() {}), <-first)
	return map[string]any{"copied": []int64{copied[0].Load(), copied[1].Load()}, "aborted": aborted.Load()}, err
}

func wait(ctx context.Context, what <-chan struct{}) {
	select {
	case <-what:
	case <-ctx.Done():
	}
}

// copySome copies what one poll gives, in one transaction that ends as wished unless the group has changed meanwhile.
func copySome(ctx context.Context, session *kgo.GroupTransactSession, wish bool) (int64, bool, error) {
	const atMost = 50
	fetches := session.PollRecords(ctx, atMost)
	if err := fetches.Err(); err != nil {
		return 0, false, err
	}
	if err := session.Begin(); err != nil {
		return 0, false, err
	}
	failed := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		session.Produce(ctx, &kgo.Record{Partition: record.Partition, Value: record.Value}, failed.Promise())
	})
	sound := failed.Err() == nil
	committed, err := session.End(context.Background(), kgo.TransactionEndTry(wish && sound))
	return int64(fetches.NumRecords()), committed, err
}
