// Load that needs a coordinator, with Kafka's own clients: commits of a group's members, or transactions, in a loop.
// Not for people: `drive` starts it as a single source file, and reads the one line of JSON that it prints.
//
//   java Coordinated.java commit|transact|transact-offsets BOOTSTRAP TOPIC CLIENTS WARM-UP COUNT
//
// Each of CLIENTS threads has a client of its own and does WARM-UP rounds that are not timed, then COUNT that are.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Coordinated {
    static final int RECORDS = 10; // of a transaction
    static final int PARTITIONS = 3; // that it writes to
    static final int OWNED = 5; // partitions that a member owns and commits
    static final byte[] VALUE = new byte[100];

    interface Step {
        void run(long number) throws Exception;
    }

    static String bootstrap, topic;
    static CyclicBarrier together;
    static int warmUp, count;

    public static void main(String[] given) throws Exception {
        bootstrap = given[1];
        topic = given[2];
        int clients = Integer.parseInt(given[3]);
        warmUp = Integer.parseInt(given[4]);
        count = Integer.parseInt(given[5]);
        together = new CyclicBarrier(clients);
        ExecutorService threads = Executors.newFixedThreadPool(clients);
        List<Future<long[]>> running = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            int number = client;
            Callable<long[]> job = given[0].equals("commit") ? () -> commit() : () -> transact(number, given[0]);
            running.add(threads.submit(() -> orExit(job)));
        }
        long began = Long.MAX_VALUE, ended = 0;
        long[] taken = new long[clients * count];
        for (int client = 0; client < clients; client++) {
            long[] times = running.get(client).get(); // when it began, then when each round had ended
            began = Math.min(began, times[0]);
            ended = Math.max(ended, times[count]);
            for (int round = 0; round < count; round++) taken[client * count + round] = times[round + 1] - times[round];
        }
        Arrays.sort(taken);
        System.out.printf(java.util.Locale.ROOT, "{\"per_s\": %.3f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}%n",
            taken.length / ((ended - began) / 1e9), taken[taken.length / 2] / 1e6, taken[taken.length * 99 / 100] / 1e6);
        System.exit(0);
    }

    // A client that fails ends the program, whatever the others wait for.
    static long[] orExit(Callable<long[]> job) {
        try {
            return job.call();
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        }
    }

    static Map<String, Object> settings(String... pairs) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int index = 0; index < pairs.length; index += 2) settings.put(pairs[index], pairs[index + 1]);
        return settings;
    }

    static long[] timed(Step step) throws Exception {
        for (int round = 0; round < warmUp; round++) step.run(round);
        together.await();
        long[] times = new long[count + 1];
        times[0] = System.nanoTime();
        for (int round = 0; round < count; round++) {
            step.run(warmUp + round);
            times[round + 1] = System.nanoTime();
        }
        together.await(); // nobody leaves the group while others still commit
        return times;
    }

    // A member of one group, with its share of the partitions; a commit is of all that it owns.
    static long[] commit() throws Exception {
        Map<String, Object> settings = settings("group.id", topic + "-group", "enable.auto.commit", "false");
        try (var member = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            member.subscribe(List.of(topic));
            while (member.assignment().size() != OWNED) member.poll(Duration.ofMillis(50));
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            return timed(number -> {
                for (TopicPartition owned : member.assignment()) offsets.put(owned, new OffsetAndMetadata(number));
                member.commitSync(offsets);
            });
        }
    }

    static long[] transact(int client, String mode) throws Exception {
        Map<String, Object> settings = settings("transactional.id", topic + "-" + client);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(topic + "-" + client + "-input");
        TopicPartition input = new TopicPartition(topic, 0);
        boolean offsets = mode.equals("transact-offsets");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            return timed(number -> {
                producer.beginTransaction();
                for (int record = 0; record < RECORDS; record++)
                    producer.send(new ProducerRecord<>(topic, record % PARTITIONS, null, VALUE));
                if (offsets)
                    producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(number)), group);
                producer.commitTransaction();
            });
        }
    }
}
