import java.time.Duration;
import java.util.List;
import java.util.UUID;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.ProduceRecord;
import sharequeue.model.ProduceRequest;
import sharequeue.model.ProducedRecord;

/**
 * Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
 * project, beside Worker.java.
 */
final class Producer {
  private static final long MOST_PAUSE_MS = 10_000;
  private final RecordsApi records;
  private final Duration deadline;

  /** {@code url}: of a gateway. {@code deadline}: how long {@link #send} tries. */
  Producer(String url, Duration deadline) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    client.setReadTimeout(Duration.ofSeconds(30));
    this.records = new RecordsApi(client);
    this.deadline = deadline;
  }

  /** Stores the records under a key of their own. */
  List<ProducedRecord> send(String topic, List<ProduceRecord> batch) throws ApiException {
    return send(topic, batch, UUID.randomUUID().toString());
  }

  /**
   * Stores the records. When it returns, they are on disk. {@code key}: names them for 24 hours, in at most 128 characters.
   * After an ApiException call it again with the same key and the same records: they are stored once.
   */
  List<ProducedRecord> send(String topic, List<ProduceRecord> batch, String key) throws ApiException {
    long end = System.nanoTime() + deadline.toNanos();
    for (long pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS)) {
      try {
        return records.produceRecords(topic, new ProduceRequest().records(batch), key, null, null).getRecords();
      } catch (ApiException fault) {
        var problem = Worker.problemOf(fault);
        pauseMs = Math.max(Worker.retryAfterMs(fault), pauseMs);
        if ((problem != null && !problem.getRetriable()) || System.nanoTime() + pauseMs * 1_000_000 > end) {
          throw fault;
        }
        Worker.sleep(pauseMs);
      }
    }
  }
}
