// Word count with Kafka Streams, each record processed exactly once: WordCount BOOTSTRAP STATE-DIRECTORY INPUT OUTPUT.
// Every word of the input gives one line of the output, "word count". The application's name is the output's. It tells
// its states on standard output, ends by SIGTERM, and with code 1 and the reason on standard error when it fails. It
// knows nothing of the tests, which create both topics.

import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;

public class WordCount {
    public static void main(String[] arguments) throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(
            topology(arguments[2], arguments[3]), settings(arguments[0], arguments[1], arguments[3]));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((state, former) -> {
            System.out.println(state);
            if (state.hasCompletedShutdown()) {
                ended.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        ended.await();
        if (streams.state() == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word) // by way of a topic of its own, from which records are deleted once counted
            .count() // in a store with a compacted topic behind it
            .toStream()
            .map((word, count) -> KeyValue.pair(word, word + " " + count))
            .to(output);
        return builder.build();
    }

    private static Properties settings(String bootstrap, String directory, String name) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // a cache would leave counts out of the output
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 1000);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000);
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5000); // how long one that died is waited for
        return settings;
    }
}
