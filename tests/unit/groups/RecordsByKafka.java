// Prints records of __consumer_offsets as Kafka's own classes write them: a name, the key in hex, the value in hex.
// test_records.py has the same records; records_by_kafka.txt is what this printed with Kafka 4.3.1.

import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.*;

public class RecordsByKafka {
    static final Uuid TOPIC = new Uuid(0x0123456789abcdefL, 0x123456789abcdef0L);

    static void print(String name, ApiMessage key, int version, ApiMessage value) {
        HexFormat hex = HexFormat.of();
        String shown = value == null ? "-" : hex.formatHex(MessageUtil.toVersionPrefixedBytes((short) version, value));
        System.out.println(name + " " + hex.formatHex(MessageUtil.toCoordinatorTypePrefixedBytes(key)) + " " + shown);
    }

    static OffsetCommitValue offset() {
        return new OffsetCommitValue().setOffset(7).setLeaderEpoch(3).setMetadata("čau").setCommitTimestamp(1700000000000L);
    }

    static GroupMetadataValue group() {
        return new GroupMetadataValue().setProtocolType("consumer").setGeneration(4).setProtocol("range")
            .setLeader("m-1").setCurrentStateTimestamp(1700000000001L).setMembers(List.of(
                new GroupMetadataValue.MemberMetadata().setMemberId("m-1").setGroupInstanceId("i").setClientId("c")
                    .setClientHost("/127.0.0.1").setRebalanceTimeout(300000).setSessionTimeout(45000)
                    .setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3}),
                new GroupMetadataValue.MemberMetadata().setMemberId("m-2").setGroupInstanceId(null).setClientId("")
                    .setClientHost("/::1").setRebalanceTimeout(1).setSessionTimeout(2)));
    }

    static ConsumerGroupMemberMetadataValue member() {
        return new ConsumerGroupMemberMetadataValue().setInstanceId(null).setRackId("r").setClientId("c")
            .setClientHost("/127.0.0.1").setSubscribedTopicNames(List.of("a", "b")).setSubscribedTopicRegex(null)
            .setRebalanceTimeoutMs(300000).setServerAssignor("uniform").setClassicMemberMetadata(null);
    }

    static void offsets() {
        OffsetCommitKey key = new OffsetCommitKey().setGroup("g").setTopic("t").setPartition(5);
        print("offset", key, 4, offset());
        print("offset-of-topic-id", key, 4, offset().setTopicId(TOPIC));
        print("offset-that-expires", key, 1, offset().setLeaderEpoch(-1).setExpireTimestamp(1700000000002L));
        print("offset-0", key, 0, offset());
        print("offset-2", key, 2, offset());
        print("offset-3", key, 3, offset());
        print("offset-gone", key, 0, null);
        print("offset-legacy", new LegacyOffsetCommitKey().setGroup("g").setTopic("t").setPartition(5), 0,
            new LegacyOffsetCommitValue().setOffset(7).setMetadata("čau").setCommitTimestamp(1700000000000L));
    }

    static void classic() {
        GroupMetadataKey key = new GroupMetadataKey().setGroup("g");
        for (int version = 0; version <= 4; version++) print("group-" + version, key, version, group());
        print("group-empty", key, 3, new GroupMetadataValue().setProtocolType("").setGeneration(0).setProtocol(null)
            .setLeader(null).setCurrentStateTimestamp(1700000000001L));
        print("group-gone", key, 0, null);
    }

    static void consumer() {
        print("consumer-group", new ConsumerGroupMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupMetadataValue().setEpoch(9).setMetadataHash(-2));
        print("consumer-group-plain", new ConsumerGroupMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupMetadataValue().setEpoch(9));
        print("partition-metadata", new ConsumerGroupPartitionMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
                new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(TOPIC).setTopicName("t")
                    .setNumPartitions(2).setPartitionMetadata(List.of(
                        new ConsumerGroupPartitionMetadataValue.PartitionMetadata().setPartition(1)
                            .setRacks(List.of("r")))))));
        ConsumerGroupMemberMetadataKey key = new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m");
        print("member", key, 0, member());
        print("member-classic", key, 0, member().setClassicMemberMetadata(
            new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000)
                .setSupportedProtocols(List.of(new ConsumerGroupMemberMetadataValue.ClassicProtocol()
                    .setName("range").setMetadata(new byte[] {1, 2})))));
        print("member-untagged", key, 0, member().setClassicMemberMetadata(
            new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()).setInstanceId("i").setSubscribedTopicRegex("a.*"));
    }

    static void assignments() {
        print("target", new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"), 0,
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(9).setAssignmentTimestamp(1700000000003L));
        print("target-member", new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m"), 0,
            new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
                new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(TOPIC)
                    .setPartitions(List.of(0, 2)))));
        print("current", new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m"), 0,
            new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(9).setPreviousMemberEpoch(8)
                .setState((byte) 1).setAssignedPartitions(List.of(
                    new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(TOPIC)
                        .setPartitions(List.of(0, 2)).setAssignmentEpochs(List.of(8, 9))))
                .setPartitionsPendingRevocation(List.of(
                    new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(TOPIC)
                        .setPartitions(List.of(1)))));
        print("regex", new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("a.*"), 0,
            new ConsumerGroupRegularExpressionValue().setTopics(List.of("aa", "ab")).setVersion(3)
                .setTimestamp(1700000000004L));
    }

    public static void main(String[] arguments) {
        offsets();
        classic();
        consumer();
        assignments();
        print("share-group", new ShareGroupMetadataKey().setGroupId("g"), 0, new ShareGroupMetadataValue().setEpoch(1));
    }
}
