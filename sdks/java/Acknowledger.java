import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.AcknowledgeRequest;
import sharequeue.model.AcknowledgeType;
import sharequeue.model.Acknowledgement;
import sharequeue.model.AcknowledgementResult;
import sharequeue.model.AcknowledgementStatus;
import sharequeue.model.FetchedBatch;
import sharequeue.model.Problem;

/** Acknowledges over generated code, until each outcome is known. Copy it into your project, beside Worker.java. */
final class Acknowledger {
  /**
   * An acknowledgement that the service refused, or whose lock had ended: its records come again, unless another member has
   * finished them. {@code code}: of the Problem, for example INVALID_RECORD_STATE; UNEXPECTED_ANSWER if something else than a
   * gateway answered; "" if nothing did.
   */
  record NotAcknowledged(Acknowledgement acknowledgement, String code, String detail) {
    @Override
    public String toString() {
      var a = acknowledgement;
      String place = a.getTopic() + "/" + a.getPartition() + "/" + a.getFirstOffset();
      return a.getType() + " of " + place + " was not applied: " + code + " " + detail;
    }

    void warn() {
      LOG.log(Level.WARNING, toString());
    }
  }

  /** Of one request. {@code doubted}: they may have had their effect, and the answer was lost. */
  private record Part(List<Acknowledgement> outcomes, boolean doubted) {}

  private static final System.Logger LOG = System.getLogger(Acknowledger.class.getName());
  private static final String NOT_OWN = "another member has finished these records, or they were deleted";
  private static final Set<Integer> REFUSED_FOR_WHAT_IT_SAYS = Set.of(400, 413, 422);
  private final RecordsApi records;
  private final String group;
  private final String memberId;

  Acknowledger(RecordsApi records, String group, String memberId) {
    this.records = records;
    this.group = group;
    this.memberId = memberId;
  }

  /**
   * Repeats for 30 s what has no known outcome: a repeat is recognised by its delivery count. A request that is refused for
   * what it says is sent again in halves, so that one bad acknowledgement spoils no other. An interrupt waits until the end.
   * Returns those that were refused or failed.
   */
  List<NotAcknowledged> acknowledge(List<Acknowledgement> outcomes) {
    List<NotAcknowledged> lost = new ArrayList<>();
    Deque<Part> parts = new ArrayDeque<>();
    if (!outcomes.isEmpty()) {
      parts.push(new Part(outcomes, false));
    }
    long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    boolean interrupted = false;
    while (!parts.isEmpty()) {
      interrupted |= Thread.interrupted(); // with the flag set, each request would fail at once
      Part next = parts.pop();
      List<Acknowledgement> part = next.outcomes();
      boolean last = System.nanoTime() > deadline;
      try {
        List<Acknowledgement> unknown = unknown(next, send(part), last, lost);
        if (!unknown.isEmpty()) {
          parts.push(new Part(unknown, true));
          Producer.sleep(500);
        }
      } catch (ApiException fault) {
        if (Producer.mayHelp(fault) && !last) {
          parts.push(new Part(part, true));
          Producer.sleep(Math.max(Producer.retryAfterMs(fault), 500));
        } else if (REFUSED_FOR_WHAT_IT_SAYS.contains(fault.getCode()) && part.size() > 1) {
          parts.push(new Part(part.subList(part.size() / 2, part.size()), next.doubted()));
          parts.push(new Part(part.subList(0, part.size() / 2), next.doubted()));
        } else {
          Problem problem = Producer.problemOf(fault);
          String other = Producer.mayHelp(fault) ? "" : "UNEXPECTED_ANSWER";
          String code = problem == null ? other : problem.getCode();
          String detail = problem == null ? Producer.said(fault) : problem.getDetail();
          part.forEach(outcome -> lost.add(new NotAcknowledged(outcome, code, detail)));
        }
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return lost;
  }

  /** What to send again. What failed joins {@code lost}. */
  private static List<Acknowledgement> unknown(
      Part sent, List<AcknowledgementResult> results, boolean last, List<NotAcknowledged> lost) {
    List<Acknowledgement> part = sent.outcomes();
    List<Acknowledgement> unknown = new ArrayList<>();
    for (int index = 0; index < results.size(); index++) {
      AcknowledgementResult result = results.get(index);
      boolean again = result.getStatus() == AcknowledgementStatus.UNKNOWN;
      if (again && !last) {
        unknown.add(part.get(index));
      } else if (result.getStatus() == AcknowledgementStatus.IGNORED && !sent.doubted()) {
        lost.add(new NotAcknowledged(part.get(index), "INVALID_RECORD_STATE", NOT_OWN));
      } else if (again || result.getStatus() == AcknowledgementStatus.FAILED) {
        lost.add(new NotAcknowledged(part.get(index), result.getCode(), result.getDetail()));
      }
    }
    return unknown;
  }

  /** One request. */
  List<AcknowledgementResult> send(List<Acknowledgement> acknowledgements) throws ApiException {
    var request = new AcknowledgeRequest().memberId(memberId).acknowledgements(acknowledgements);
    var results = records.acknowledgeRecords(group, request, null, null).getResults();
    return Producer.needed(results, acknowledgements.size());
  }

  /** Renews the locks of all records of the batches. If it fails, the next third of the lock tries again. */
  void renew(List<FetchedBatch> held) {
    try {
      send(all(held, AcknowledgeType.RENEW, null));
    } catch (ApiException fault) {
      // the locks last for two more tries
    }
  }

  static List<Acknowledgement> all(List<FetchedBatch> held, AcknowledgeType type, Boolean begun) {
    List<Acknowledgement> all = new ArrayList<>();
    held.forEach(batch -> all.add(one(batch, batch.getFirstOffset(), batch.getLastOffset(), type).begun(begun)));
    return all;
  }

  /** An acknowledgement of some records of a batch. */
  static Acknowledgement one(FetchedBatch batch, long first, long last, AcknowledgeType type) {
    Acknowledgement one = new Acknowledgement().topic(batch.getTopic()).partition(batch.getPartition()).type(type);
    one.topicId(batch.getTopicId()).deliveryCount(batch.getDeliveryCount());
    return one.firstOffset(first).lastOffset(last);
  }
}
