import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.AcknowledgeRequest;
import sharequeue.model.AcknowledgeType;
import sharequeue.model.Acknowledgement;
import sharequeue.model.AcknowledgementResult;
import sharequeue.model.AcknowledgementStatus;
import sharequeue.model.ConsumerRecord;
import sharequeue.model.FetchRequest;
import sharequeue.model.FetchedBatch;
import sharequeue.model.Problem;

/**
 * A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project.
 *
 * <p>A handler that returns accepts its record. One that throws releases it, with the error as the reason, until the group's
 * delivery limit makes it a dead letter; {@link Reject} makes it one at once.
 */
final class Worker implements Runnable {
  /** Thrown by a handler: make the record a dead letter, for this reason. */
  static final class Reject extends RuntimeException {
    Reject(String reason) {
      super(reason);
    }
  }

  interface Handler {
    void handle(ConsumerRecord record, FetchedBatch batch) throws Exception;
  }

  private static final int WAIT_MS = 10_000;
  private final RecordsApi records;
  private final String group;
  private final List<String> topics;
  private final Duration lock;
  private final Handler handler;
  private final String memberId = UUID.randomUUID().toString();
  private volatile boolean stopped;

  /** {@code url}: of a gateway. {@code lock}: how long the locks last; null: as long as the group says. */
  Worker(String url, String group, List<String> topics, Duration lock, Handler handler) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(url);
    client.setReadTimeout(Duration.ofMillis(WAIT_MS + 10_000)); // above the wait of a fetch
    this.records = new RecordsApi(client);
    this.group = group;
    this.topics = topics;
    this.lock = lock;
    this.handler = handler;
  }

  /** Ends {@link #run} after the record in hand; records that were fetched and not handled are released. */
  void stop() {
    stopped = true;
  }

  @Override
  public void run() {
    long pauseMs = 100;
    String fetchId = UUID.randomUUID().toString();
    while (!stopped) {
      try {
        settle(records.fetchRecords(group, request(fetchId)).getBatches());
        pauseMs = 100;
        fetchId = UUID.randomUUID().toString();
      } catch (ApiException fault) {
        Problem problem = problemOf(fault);
        if (problem != null && !problem.getRetriable()) {
          throw new IllegalStateException(problem.getCode() + ": " + problem.getDetail(), fault);
        }
        sleep(Math.max(retryAfterMs(fault), pauseMs));
        pauseMs = Math.min(2 * pauseMs, WAIT_MS);
      }
    }
  }

  /** A repeat with the same id, because an answer was lost, gets the same records. */
  private FetchRequest request(String fetchId) {
    FetchRequest request = new FetchRequest().topics(topics).memberId(memberId).maxWaitMs(WAIT_MS).maxRecords(100);
    request.fetchId(fetchId);
    return lock == null ? request : request.lockDurationMs((int) lock.toMillis());
  }

  /** Handles all records, one after another, while a thread renews the locks of the batches that are not settled. */
  private void settle(List<FetchedBatch> batches) {
    if (batches.isEmpty()) {
      return;
    }
    List<FetchedBatch> held = new CopyOnWriteArrayList<>(batches);
    var renewing = Executors.newSingleThreadScheduledExecutor();
    long third = batches.get(0).getLockDurationMs() / 3;
    renewing.scheduleAtFixedRate(() -> renew(held), third, third, TimeUnit.MILLISECONDS);
    try {
      for (FetchedBatch batch : batches) {
        acknowledge(outcomes(batch));
        held.remove(batch);
      }
    } finally {
      renewing.shutdown();
    }
  }

  private List<Acknowledgement> outcomes(FetchedBatch batch) {
    List<Acknowledgement> outcomes = new ArrayList<>();
    for (ConsumerRecord record : batch.getRecords()) {
      if (stopped) { // it was never begun, so this delivery is no attempt
        outcomes.add(one(batch, record.getOffset(), batch.getLastOffset(), AcknowledgeType.RELEASE).begun(false));
        break;
      }
      AcknowledgeType type = AcknowledgeType.ACCEPT;
      String reason = null;
      try {
        handler.handle(record, batch);
      } catch (Exception fault) {
        type = fault instanceof Reject ? AcknowledgeType.REJECT : AcknowledgeType.RELEASE;
        reason = String.valueOf(fault.getMessage());
      }
      outcomes.add(one(batch, record.getOffset(), record.getOffset(), type).reason(reason));
    }
    return outcomes;
  }

  private void renew(List<FetchedBatch> held) {
    List<Acknowledgement> renewals = new ArrayList<>();
    held.forEach(batch -> renewals.add(one(batch, batch.getFirstOffset(), batch.getLastOffset(), AcknowledgeType.RENEW)));
    try {
      send(renewals);
    } catch (ApiException fault) {
      // the next third of the lock tries again
    }
  }

  /** Repeats until the outcome is known. A repeat is recognised by its delivery count. */
  private void acknowledge(List<Acknowledgement> outcomes) {
    long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    while (!outcomes.isEmpty() && System.nanoTime() < deadline) {
      try {
        List<AcknowledgementResult> results = send(outcomes);
        List<Acknowledgement> unknown = new ArrayList<>();
        for (int index = 0; index < results.size(); index++) {
          if (results.get(index).getStatus() == AcknowledgementStatus.UNKNOWN) {
            unknown.add(outcomes.get(index));
          }
        }
        outcomes = unknown;
      } catch (ApiException fault) {
        Problem problem = problemOf(fault);
        if (problem != null && !problem.getRetriable()) {
          return; // the locks ended: the records come again
        }
        sleep(Math.max(retryAfterMs(fault), 500));
      }
    }
  }

  private List<AcknowledgementResult> send(List<Acknowledgement> acknowledgements) throws ApiException {
    var request = new AcknowledgeRequest().memberId(memberId).acknowledgements(acknowledgements);
    return records.acknowledgeRecords(group, request, null, null).getResults();
  }

  private static Acknowledgement one(FetchedBatch batch, long first, long last, AcknowledgeType type) {
    Acknowledgement one = new Acknowledgement().topic(batch.getTopic()).partition(batch.getPartition()).type(type);
    return one.firstOffset(first).lastOffset(last).deliveryCount(batch.getDeliveryCount());
  }

  /** The Problem that the service answered; null if something between answered, or nothing. */
  static Problem problemOf(ApiException fault) {
    try {
      return ApiClient.createDefaultObjectMapper().readValue(fault.getResponseBody(), Problem.class);
    } catch (Exception none) {
      return null;
    }
  }

  static long retryAfterMs(ApiException fault) {
    var headers = fault.getResponseHeaders();
    return headers == null ? 0 : 1000 * headers.firstValueAsLong("Retry-After").orElse(0);
  }

  static void sleep(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
