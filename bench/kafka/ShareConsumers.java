import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One producer and one share consumer of Kafka: prints the acknowledged records per second, and their own CPU for a
 * record in microseconds.
 *
 * <p>Arguments: the broker's address, the topic (and group), how many records, of how many bytes, `sync` or `async`, and
 * whether all records are produced `before` the first of them is polled, or `beside`.
 */
public final class ShareConsumers {
    private static final int BATCH = 100;
    private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        boolean sync = arguments[4].equals("sync");
        StringBuilder text = new StringBuilder();
        Random random = new Random(7);
        for (int letter = 0; letter < 1 << 22; letter++) {
            text.append(LETTERS.charAt(random.nextInt(LETTERS.length())));
        }
        int length = Integer.parseInt(arguments[3]);
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address));
        settings.put("group.id", topic);
        settings.put("max.poll.records", BATCH);
        settings.put("share.acquire.mode", "record_limit"); // otherwise a poll gets whole batches of the producer
        settings.put("share.acknowledgement.mode", "explicit");
        try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", address, "acks", "all"),
                        new StringSerializer(), new StringSerializer());
                var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            producer.send(new ProducerRecord<>(topic, "first")).get();
            while (settle(consumer, true) == 0) {} // the member has its partition now
            Thread sending = new Thread(() -> {
                for (int number = 0; number < records; number++) {
                    int place = random.nextInt(text.length() - length);
                    producer.send(new ProducerRecord<>(topic, text.substring(place, place + length)));
                }
                producer.flush();
            });
            if (arguments[5].equals("before")) {
                sending.start();
                sending.join();
            }
            var machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            long used = machine.getProcessCpuTime();
            long began = System.nanoTime();
            if (arguments[5].equals("beside")) {
                sending.start();
            }
            int done = 0;
            while (done < records) {
                done += settle(consumer, sync);
            }
            consumer.commitSync();
            double rate = done * 1e9 / (System.nanoTime() - began);
            System.out.println(rate + " " + (machine.getProcessCpuTime() - used) / 1e3 / done);
        }
    }

    private static int settle(KafkaShareConsumer<String, String> consumer, boolean sync) {
        ConsumerRecords<String, String> polled = consumer.poll(Duration.ofSeconds(1));
        for (ConsumerRecord<String, String> record : polled) {
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        }
        if (polled.isEmpty()) {
            return 0;
        }
        if (sync) {
            consumer.commitSync();
        } else {
            consumer.commitAsync();
        }
        return polled.count();
    }
}
