import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Apache Kafka's own cleaner, on partition directories of a stopped broker: NOW_MS NAME=VALUE,… DIRECTORY…
 *
 * Each is cleaned once, from its beginning to its active segment, one after the other in this one JVM. Prints a line of
 * JSON for each. The key map and buffers are those of a broker with default settings.
 */
public class Clean {
    static final int KEY_MAP_BYTES = 134_217_728;
    static final int BUFFER_BYTES = 524_288 / 2;
    static final int LARGEST_MESSAGE = 1_048_588;

    /** Nothing runs later: old files stay until the process ends. */
    static class Never implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) { return null; }
        public void resizeThreadPool(int size) { }
    }

    public static void main(String[] arguments) throws Exception {
        long now = Long.parseLong(arguments[0]);
        Map<String, String> settings = new HashMap<>(Map.of("cleanup.policy", "compact"));
        for (String pair : arguments[1].split(","))
            settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        for (int place = 2; place < arguments.length; place++)
            clean(new File(arguments[place]), new LogConfig(settings), now);
        System.exit(0);
    }

    static void clean(File directory, LogConfig config, long now) throws Exception {
        UnifiedLog log = UnifiedLog.create(
            directory, config, 0L, Long.MAX_VALUE, new Never(), new BrokerTopicStats(false), Time.SYSTEM, 300_000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), true,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(
            0, new SkimpyOffsetMap(KEY_MAP_BYTES), BUFFER_BYTES, LARGEST_MESSAGE, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "bytes", "bytes", Time.SYSTEM), Time.SYSTEM, partition -> { });
        var threads = ManagementFactory.getThreadMXBean();
        long begun = System.nanoTime(), cpu = threads.getCurrentThreadCpuTime();
        long upper = Math.min(log.activeSegment().baseOffset(), log.lastStableOffset());
        var done = cleaner.doClean(new LogToClean(log, log.logStartOffset(), upper, true), now);
        CleanerStats stats = done.getValue();
        System.out.printf(
            "{\"end\": %d, \"read\": %d, \"kept\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f}%n",
            done.getKey(), stats.messagesRead(), stats.messagesWritten(),
            (System.nanoTime() - begun) / 1e9, (threads.getCurrentThreadCpuTime() - cpu) / 1e9);
    }
}
