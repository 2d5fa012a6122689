import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Batches BOOTSTRAP TOPIC CODEC ID BATCH…: sends batches of values, which are separated by "|", one batch after the
 * other. Prints a line for each record: its offset, or the error. With an ID other than "-" each batch is a transaction,
 * which is aborted if a record fails.
 */
public final class Batches {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("compression.type", arguments[2]);
        settings.put("linger.ms", "1000");
        boolean transactional = !arguments[3].equals("-");
        if (transactional) {
            settings.put("transactional.id", arguments[3]);
        }
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            if (transactional) {
                producer.initTransactions();
            }
            for (int at = 4; at < arguments.length; at++) {
                if (transactional) {
                    producer.beginTransaction();
                }
                boolean whole = send(producer, arguments[1], arguments[at].split("\\|"));
                if (transactional && whole) {
                    producer.commitTransaction();
                } else if (transactional) {
                    producer.abortTransaction();
                }
            }
        }
    }

    private static boolean send(KafkaProducer<String, String> producer, String topic, String[] values) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) {
            sent.add(producer.send(new ProducerRecord<>(topic, value)));
        }
        producer.flush();
        boolean whole = true;
        for (Future<RecordMetadata> each : sent) {
            try {
                System.out.println(each.get().offset());
            } catch (ExecutionException failure) {
                whole = false;
                System.out.println(failure.getCause().getClass().getSimpleName() + ": " + failure.getCause().getMessage());
            }
        }
        return whole;
    }
}
