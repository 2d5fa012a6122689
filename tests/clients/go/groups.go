// Groups: a member that tells what it does in the same words as the programs in ../members, and a look at groups by way
// of kadm. Knows nothing of transactions.
package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	"uniform":            kgo.CooperativeStickyBalancer(), // what franz-go calls by that name under the consumer protocol
}

type place struct {
	topic     string
	partition int32
}

// MarshalJSON writes a pair, as the Python members do.
func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.partition}) }

type given struct {
	Name, Group, Protocol, Assignor, Instance string
	Topics                                    []string
	SessionMs                                 int `json:"session_ms"`
	HeartbeatMs                               int `json:"heartbeat_ms"`
}

// groupMember tells what it reads, commits and owns. Its owned partitions change in callbacks, hence the lock.
type groupMember struct {
	lock  sync.Mutex
	owned map[place]bool
}

// monotonic is the clock that all processes of a machine share; package time does not give it away.
func monotonic() int64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func event(name string, what string, value any) map[string]any {
	return map[string]any{"event": name, "at": monotonic(), what: value}
}

func tell(name string, what string, value any) {
	line, _ := json.Marshal(event(name, what, value))
	os.Stdout.Write(append(line, '\n'))
}

func (m *groupMember) change(partitions map[string][]int32, gained bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if gained {
				m.owned[place{topic, number}] = true
			} else {
				delete(m.owned, place{topic, number})
			}
		}
	}
	owned := []place{}
	for each := range m.owned {
		owned = append(owned, each)
	}
	tell("owns", "partitions", owned)
}

func (m *groupMember) options(told given) []kgo.Opt {
	ctx := context.Background()
	if told.Protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true) // the way into it in this release
	}
	options := []kgo.Opt{
		kgo.WithContext(ctx), kgo.ClientID(told.Name), kgo.ConsumerGroup(told.Group), kgo.ConsumeTopics(told.Topics...),
		kgo.Balancers(balancers[told.Assignor]), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(told.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(told.HeartbeatMs) * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) { m.change(gained, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.change(lost, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			tell("lost", "partitions", len(lost))
			m.change(lost, false)
		}),
	}
	if told.Instance != "" {
		options = append(options, kgo.InstanceID(told.Instance))
	}
	return options
}

// member SETTINGS (as JSON): reads and commits until SIGTERM, then leaves. A rebalance waits from each poll to its commit.
func member(_ context.Context, bootstrap string, arguments []string) (any, error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var told given
	if err := json.Unmarshal([]byte(arguments[0]), &told); err != nil {
		return nil, err
	}
	self := &groupMember{owned: map[place]bool{}}
	client, err := connect(bootstrap, self.options(told)...)
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(record *kgo.Record) {
			tell("read", "records", [][]any{{record.Topic, record.Partition, record.Offset, string(record.Value)}})
		})
		if !fetches.Empty() {
			commit(client)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return event("left", "name", told.Name), nil
}

// commit what was read, and tell of it or of the refusal.
func commit(client *kgo.Client) {
	offsets := client.UncommittedOffsets()
	client.CommitOffsetsSync(context.Background(), offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
			if err == nil {
				for _, topic := range response.Topics {
					for _, partition := range topic.Partitions {
						if refused := kerr.ErrorForCode(partition.ErrorCode); refused != nil {
							err = refused
						}
					}
				}
			}
			if err != nil {
				tell("refused", "error", err.Error())
				return
			}
			committed := [][]any{}
			for topic, partitions := range offsets {
				for partition, offset := range partitions {
					committed = append(committed, []any{topic, partition, offset.Offset})
				}
			}
			tell("committed", "offsets", committed)
		})
}

// look GROUP TYPE: what kadm tells of a group of that type.
func look(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	group, kind := arguments[0], arguments[1]
	client, err := connect(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	listed, err := admin.ListGroupsByType(ctx, []string{kind})
	if err != nil {
		return nil, err
	}
	told := map[string]any{"state": listed[group].State, "protocol type": listed[group].ProtocolType}
	members := map[string]int{} // how many partitions each has
	if kind == "consumer" {
		described, err := admin.DescribeConsumerGroups(ctx, group)
		if err != nil {
			return nil, err
		}
		told["assignor"] = described[group].AssignorName
		for _, one := range described[group].Members {
			for _, partitions := range one.Assignment {
				members[one.ClientID] += len(partitions)
			}
		}
	} else {
		lags, err := admin.Lag(ctx, group)
		if err != nil {
			return nil, err
		}
		told["assignor"], told["lag"] = lags[group].Protocol, lags[group].Lag.Total()
		for _, one := range lags[group].Members {
			assigned, _ := one.Assigned.AsConsumer()
			for _, topic := range assigned.Topics {
				members[one.ClientID] += len(topic.Partitions)
			}
		}
	}
	told["members"] = members
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	committed := []int64{}
	for _, offset := range offsets.Sorted() {
		committed = append(committed, offset.At)
	}
	told["committed"] = committed
	return told, nil
}

// forget GROUP TOPIC: sets the offset of partition 0 to 1, deletes that of partition 1, then the group; what was left
// before the group went, and how its deletion ended the first and the second time.
func forget(ctx context.Context, bootstrap string, arguments []string) (any, error) {
	group, topic := arguments[0], arguments[1]
	client, err := connect(bootstrap)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	var set kadm.Offsets
	set.AddOffset(topic, 0, 1, -1)
	if err := admin.CommitAllOffsets(ctx, group, set); err != nil {
		return nil, err
	}
	var gone kadm.TopicsSet
	gone.Add(topic, 1)
	deleted, err := admin.DeleteOffsets(ctx, group, gone)
	if err != nil || deleted.Error() != nil {
		return nil, err
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	offsets.Each(func(offset kadm.OffsetResponse) { left[offset.Partition] = offset.At })
	told := map[string]any{"left": left}
	for _, time := range []string{"first", "second"} {
		answer, _ := admin.DeleteGroup(ctx, group)
		told[time] = name(answer.Err)
	}
	return told, nil
}
