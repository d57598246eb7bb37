import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.AcknowledgeType;
import sharequeue.model.Acknowledgement;
import sharequeue.model.ConsumerRecord;
import sharequeue.model.FetchRequest;
import sharequeue.model.FetchedBatch;

/**
 * A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project,
 * beside Acknowledger.java and Producer.java.
 *
 * <p>A handler that returns accepts its record. One that throws releases it, with the error as the reason, until the group's
 * delivery limit makes it a dead letter; {@link Release} says when it comes again, {@link Reject} makes it one at once.
 */
final class Worker implements Runnable {
  /** Thrown by a handler: deliver the record again after {@code delayMs}, up to 12 hours, not after the group's backoff. */
  static final class Release extends RuntimeException {
    private final int delayMs;

    Release(String reason, long delayMs) {
      super(reason);
      this.delayMs = (int) Math.min(Math.max(delayMs, 0), 43_200_000);
    }
  }

  /** Thrown by a handler: make the record a dead letter, for this reason. */
  static final class Reject extends RuntimeException {
    Reject(String reason) {
      super(reason);
    }
  }

  interface Handler {
    void handle(ConsumerRecord record, FetchedBatch batch) throws Exception;
  }

  private static final System.Logger LOG = System.getLogger(Worker.class.getName());
  private static final int WAIT_MS = 10_000;
  private final RecordsApi records;
  private final String url;
  private final String group;
  private final List<String> topics;
  private final Duration lock;
  private final Handler handler;
  private final String memberId = UUID.randomUUID().toString();
  private final Acknowledger acknowledger;
  private int maxRecords = 100;
  private Consumer<Acknowledger.NotAcknowledged> onError = Acknowledger.NotAcknowledged::warn;
  private volatile boolean stopped;
  private Thread fetching;

  /** {@code client}: of {@link Producer#client}. {@code lock}: how long the locks last; null: as long as the group says. */
  Worker(ApiClient client, String group, List<String> topics, Duration lock, Handler handler) {
    this.records = new RecordsApi(client);
    this.url = client.getBaseUri();
    this.group = group;
    this.topics = topics;
    this.lock = lock;
    this.handler = handler;
    this.acknowledger = new Acknowledger(records, group, memberId);
  }

  /** How many records a fetch takes; 100 unless you say otherwise. */
  Worker maxRecords(int most) {
    maxRecords = most;
    return this;
  }

  /** Gets each acknowledgement that the service refused, or whose lock had ended. They are logged unless you say otherwise. */
  Worker onError(Consumer<Acknowledger.NotAcknowledged> handler) {
    onError = handler;
    return this;
  }

  /** Ends {@link #run} at once, or after the record in hand. The other records are released. */
  synchronized void stop() {
    stopped = true;
    if (fetching != null) {
      fetching.interrupt();
    }
  }

  private boolean ending() {
    return stopped || Thread.currentThread().isInterrupted();
  }

  /** An interrupt ends it like {@link #stop}; the thread is interrupted then, too. */
  @Override
  public void run() {
    long pauseMs = 0;
    String fetchId = UUID.randomUUID().toString();
    while (!ending()) {
      try {
        settle(fetch(fetchId, pauseMs));
        pauseMs = 0;
        fetchId = UUID.randomUUID().toString();
      } catch (ApiException fault) {
        if (ending()) {
          return;
        }
        if (!Producer.mayHelp(fault)) {
          throw new IllegalStateException(url + ": " + Producer.said(fault), fault);
        }
        if (pauseMs == 0) {
          LOG.log(Level.WARNING, "no records for the group " + group + ", trying again: " + Producer.said(fault));
        }
        pauseMs = Math.max(Producer.retryAfterMs(fault), Math.min(Math.max(2 * pauseMs, Producer.FIRST_PAUSE_MS), WAIT_MS));
      }
    }
  }

  /** Pauses, then waits for records. {@link #stop} interrupts both: the connection is closed, and the service gives nothing. */
  private List<FetchedBatch> fetch(String fetchId, long pauseMs) throws ApiException {
    synchronized (this) {
      fetching = Thread.currentThread();
      if (stopped) {
        fetching.interrupt();
      }
    }
    try {
      Producer.sleep(pauseMs);
      return Producer.needed(records.fetchRecords(group, request(fetchId)).getBatches(), -1);
    } finally {
      synchronized (this) {
        fetching = null;
        if (stopped) {
          Thread.interrupted(); // it was for the fetch
        }
      }
    }
  }

  /** A repeat with the same id, because an answer was lost, gets the same records. */
  private FetchRequest request(String fetchId) {
    FetchRequest request = new FetchRequest().topics(topics).memberId(memberId).fetchId(fetchId).maxWaitMs(WAIT_MS);
    return request.maxRecords(maxRecords).lockDurationMs(lock == null ? null : (int) lock.toMillis());
  }

  /** Handles all records, one after another, while a thread renews the locks of the batches that are not settled. */
  private void settle(List<FetchedBatch> batches) {
    if (batches.isEmpty()) {
      return;
    }
    List<FetchedBatch> held = new CopyOnWriteArrayList<>(batches);
    var renewing = Executors.newSingleThreadScheduledExecutor();
    long third = batches.get(0).getLockDurationMs() / 3;
    renewing.scheduleAtFixedRate(() -> acknowledger.renew(held), third, third, TimeUnit.MILLISECONDS);
    try {
      for (FetchedBatch batch : batches) {
        List<Acknowledgement> outcomes = new ArrayList<>();
        try {
          handle(batch, outcomes);
        } finally { // also after an Error
          held.remove(batch);
          acknowledger.acknowledge(outcomes).forEach(onError);
        }
      }
    } finally { // something is held after an Error, and if onError threw
      renewing.shutdown();
      acknowledger.acknowledge(Acknowledger.all(held, AcknowledgeType.RELEASE, false)).forEach(Acknowledger.NotAcknowledged::warn);
    }
  }

  private void handle(FetchedBatch batch, List<Acknowledgement> outcomes) {
    for (ConsumerRecord record : batch.getRecords()) {
      if (ending()) {
        giveBack(batch, record.getOffset(), outcomes);
        return;
      }
      Acknowledgement outcome = Acknowledger.one(batch, record.getOffset(), record.getOffset(), AcknowledgeType.ACCEPT);
      try {
        handler.handle(record, batch);
      } catch (Reject fault) {
        outcome.type(AcknowledgeType.REJECT).reason(Producer.reason(fault.getMessage()));
      } catch (Release fault) {
        outcome.type(AcknowledgeType.RELEASE).reason(Producer.reason(fault.getMessage())).delayMs(fault.delayMs);
      } catch (InterruptedException fault) {
        Thread.currentThread().interrupt();
        outcome.type(AcknowledgeType.RELEASE).reason("interrupted");
      } catch (Error fault) { // it ends the worker
        outcomes.add(outcome.type(AcknowledgeType.RELEASE).reason(Producer.reason(fault.toString())));
        giveBack(batch, record.getOffset() + 1, outcomes);
        throw fault;
      } catch (Exception fault) {
        String place = batch.getTopic() + "/" + batch.getPartition() + "/" + record.getOffset();
        LOG.log(Level.WARNING, "the handler failed, and " + place + " is released, delivery " + batch.getAttempt(), fault);
        outcome.type(AcknowledgeType.RELEASE).reason(Producer.reason(fault.toString()));
      }
      outcomes.add(outcome);
    }
  }

  /** Releases a batch from an offset on: the handler did not begin with it, so this delivery is no attempt. */
  private static void giveBack(FetchedBatch batch, long first, List<Acknowledgement> outcomes) {
    if (first <= batch.getLastOffset()) {
      outcomes.add(Acknowledger.one(batch, first, batch.getLastOffset(), AcknowledgeType.RELEASE).begun(false));
    }
  }
}
