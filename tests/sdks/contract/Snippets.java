import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.ConsumerRecord;
import sharequeue.model.FetchedBatch;
import sharequeue.model.ProduceRecord;

/**
 * Runs the code that docs/sdks.md shows in its text and tables. The environment says where the gateway is. It ends by SIGTERM,
 * with the exit code 143.
 */
final class Snippets {
  private static final ApiClient client = Producer.client(System.getenv("SHAREQUEUE_URL"), null);
  private static final long PATIENCE_NS = Duration.ofSeconds(60).toNanos();
  private static final List<String> HANDLED = Collections.synchronizedList(new ArrayList<>());
  private static final CountDownLatch STOPPED = new CountDownLatch(1);
  private static Worker worker;

  public static void main(String[] arguments) throws Exception {
    sendTwice(client);
    worker = new Worker(client, "billing", List.of("orders"), Duration.ofMinutes(1), Snippets::settle).maxRecords(10);
    worker.run();
    expect(List.of("ann 3 web", "bob"), HANDLED);
    readDeadLetters();
    stopAtSigterm();
  }

  /** A repeat with the key stores nothing. */
  private static void sendTwice(ApiClient client) throws ApiException {
    var order = new LinkedHashMap<>(Map.of("total", 3));
    var headers = new LinkedHashMap<>(Map.of("from", "web"));
    var ann = new ProduceRecord().key("ann").value(order).headers(headers);
    var batch = List.of(ann, new ProduceRecord().value("bob"));
    var producer = new Producer(client, Duration.ofSeconds(30));
    var first = producer.send("orders", batch, "order-17");
    var again = producer.send("orders", batch, "order-17");
    expect(first, again);
  }

  /** Ann's record comes again in a minute, Bob's becomes a dead letter. */
  private static void settle(ConsumerRecord record, FetchedBatch batch) {
    if (record.getKey() == null) {
      HANDLED.add(record.getValue().toString());
      worker.stop();
      throw new Worker.Reject("no address");
    }
    Object total = ((Map<?, ?>) record.getValue()).get("total");
    HANDLED.add(record.getKey() + " " + total + " " + record.getHeaders().get("from"));
    throw new Worker.Release("busy", 60_000);
  }

  /** The service writes a dead letter a moment after the reject. */
  private static void readDeadLetters() throws Exception {
    for (long deadline = System.nanoTime() + PATIENCE_NS; System.nanoTime() < deadline; Thread.sleep(100)) {
      try {
        var letters = new RecordsApi(client).readRecords("dlq.billing", 0, 0L, null, null, null, null).getRecords();
        if (letters.isEmpty()) {
          continue;
        }
        var letter = letters.get(letters.size() - 1);
        if ("bob".equals(letter.getValue())) {
          expect("no address", letter.getHeaders().get("__dlq.errors.reason"));
          return;
        }
      } catch (ApiException fault) {
        if (fault.getCode() != 404) {
          throw fault;
        }
      }
    }
    throw new IllegalStateException("there is no dead letter");
  }

  /** The handler finishes its record, the shutdown hook waits for its acknowledgement, and Ann's has not come again. */
  private static void stopAtSigterm() throws Exception {
    List<Acknowledger.NotAcknowledged> lost = Collections.synchronizedList(new ArrayList<>());
    Consumer<Acknowledger.NotAcknowledged> handler = lost::add;
    HANDLED.clear();
    worker = new Worker(client, "billing", List.of("orders"), null, Snippets::waitForStop).onError(handler);
    Thread running = new Thread(worker);
    Runnable hook =
        () -> {
          worker.stop();
          STOPPED.countDown();
          try {
            running.join();
            expect(List.of("carol"), HANDLED);
            expect(List.of(), lost);
          } catch (Exception fault) {
            System.out.println(fault);
            Runtime.getRuntime().halt(1);
          }
        };
    Runtime.getRuntime().addShutdownHook(new Thread(hook));
    var carol = new ProduceRecord().valueBase64("carol".getBytes(StandardCharsets.UTF_8));
    Consumer<Map<String, String>> inject =
        headers -> headers.put("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    new Producer(client, Duration.ofSeconds(30)).inject(inject).send("orders", List.of(carol));
    running.start();
    running.join();
  }

  private static void waitForStop(ConsumerRecord record, FetchedBatch batch) throws Exception {
    new ProcessBuilder("kill", String.valueOf(ProcessHandle.current().pid())).start();
    if (!STOPPED.await(60, TimeUnit.SECONDS)) {
      Runtime.getRuntime().halt(1);
    }
    HANDLED.add(new String(record.getValueBase64(), StandardCharsets.UTF_8));
  }

  private static void expect(Object expected, Object found) {
    if (!expected.equals(found)) {
      throw new IllegalStateException(found + ", not " + expected);
    }
  }
}
