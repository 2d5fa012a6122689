import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Copies records from one topic to another, exactly once, until it has copied so many. One line for each commit
 * ("committed 40"), one for each transaction that had to be given up ("aborted ..."), and "done" in the end.
 */
public class Copy {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0], source = arguments[1], target = arguments[2], name = arguments[3];
        int count = Integer.parseInt(arguments[4]), most = Integer.parseInt(arguments[5]);
        String protocol = arguments[6];
        int copied = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading(bootstrap, name, most, protocol));
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing(bootstrap, name))) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (copied < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                try {
                    producer.beginTransaction();
                    for (ConsumerRecord<byte[], byte[]> each : records)
                        producer.send(new ProducerRecord<>(target, each.partition(), each.key(), each.value()));
                    producer.sendOffsetsToTransaction(ends(records), consumer.groupMetadata());
                    producer.commitTransaction();
                    copied += records.count();
                    System.out.println("committed " + copied);
                } catch (ProducerFencedException fatal) {
                    throw fatal;
                } catch (KafkaException problem) {
                    System.out.println("aborted " + problem);
                    producer.abortTransaction();
                    for (Map.Entry<TopicPartition, OffsetAndMetadata> each : ends(records).entrySet()) {
                        OffsetAndMetadata known = consumer.committed(java.util.Set.of(each.getKey())).get(each.getKey());
                        consumer.seek(each.getKey(), known == null ? 0 : known.offset());
                    }
                }
            }
        }
        System.out.println("done");
    }

    private static Map<TopicPartition, OffsetAndMetadata> ends(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : records)
            ends.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        return ends;
    }

    private static Properties reading(String bootstrap, String name, int most, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", name);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", most);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        return settings;
    }

    private static Properties writing(String bootstrap, String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", name);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        return settings;
    }
}
