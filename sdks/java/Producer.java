import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Supplier;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.api.RecordsApi;
import sharequeue.model.Problem;
import sharequeue.model.ProduceRecord;
import sharequeue.model.ProduceRequest;
import sharequeue.model.ProducedRecord;

/**
 * Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
 * project. Worker.java and Acknowledger.java take from here which requests to repeat, and when.
 */
final class Producer {
  static final long FIRST_PAUSE_MS = 100;
  private static final long MOST_PAUSE_MS = 10_000;
  private static final System.Logger LOG = System.getLogger(Producer.class.getName());
  private final String url;
  private final RecordsApi records;
  private final Duration deadline;
  private Consumer<Map<String, String>> inject;

  /**
   * A client of a gateway. {@code token}: is asked for the access key of each request; null: requests have no key. A number
   * in an answer may have any length: with Jackson's limit of 1,000 digits, one value would spoil a whole answer.
   */
  static ApiClient client(String url, Supplier<String> token) {
    ObjectMapper mapper = ApiClient.createDefaultObjectMapper();
    mapper.getFactory().setStreamReadConstraints(StreamReadConstraints.builder().maxNumberLength(Integer.MAX_VALUE).build());
    mapper.enable(JsonParser.Feature.USE_FAST_BIG_NUMBER_PARSER);
    ApiClient client = new ApiClient(ApiClient.createDefaultHttpClientBuilder(), mapper, url);
    if (token != null) {
      client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token.get()));
    }
    return client.setReadTimeout(Duration.ofSeconds(30)); // above the wait of a fetch
  }

  /** {@code client}: of {@link #client}. {@code deadline}: how long {@link #send} tries. */
  Producer(ApiClient client, Duration deadline) {
    this.url = client.getBaseUri();
    this.records = new RecordsApi(client);
    this.deadline = deadline;
  }

  /** Writes headers for records without a key of yours, as OpenTelemetry's propagators do with {@code traceparent}. */
  Producer inject(Consumer<Map<String, String>> writer) {
    inject = writer;
    return this;
  }

  /** Stores the records under a key of their own. The headers of {@link #inject} are put into them. */
  List<ProducedRecord> send(String topic, List<ProduceRecord> batch) throws ApiException {
    for (ProduceRecord record : inject == null ? List.<ProduceRecord>of() : batch) {
      Map<String, String> made = new LinkedHashMap<>();
      inject.accept(made);
      made.putAll(record.getHeaders() == null ? Map.of() : record.getHeaders());
      record.headers(made);
    }
    return send(topic, batch, UUID.randomUUID().toString());
  }

  /**
   * Stores the records. When it returns, they are on disk. {@code key}: names them for 24 hours, in at most 128 characters.
   * After an ApiException, also one by an interrupt, call it again with the same key and records: they are stored once.
   */
  List<ProducedRecord> send(String topic, List<ProduceRecord> batch, String key) throws ApiException {
    long end = System.nanoTime() + deadline.toNanos();
    for (long pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS)) {
      try {
        var request = new ProduceRequest().records(batch);
        return needed(records.produceRecords(topic, request, key, null, null).getRecords(), batch.size());
      } catch (ApiException fault) {
        boolean again = mayHelp(fault);
        if (again && pauseMs == FIRST_PAUSE_MS) {
          LOG.log(Level.WARNING, "no answer from the topic " + topic + ", trying again: " + said(fault));
        }
        pauseMs = Math.max(retryAfterMs(fault), pauseMs);
        if (!again && problemOf(fault) == null) {
          throw new ApiException(fault.getCode(), url + ": " + said(fault));
        }
        if (!again || Thread.currentThread().isInterrupted() || System.nanoTime() + pauseMs * 1_000_000 > end) {
          throw fault;
        }
        sleep(pauseMs);
      }
    }
  }

  /** A list of an answer: without it, or with another size than {@code size} (-1: any), the answer is not a gateway's. */
  static <T> List<T> needed(List<T> found, int size) throws ApiException {
    if (found == null || size >= 0 && found.size() != size) {
      throw new ApiException(200, "another program answered");
    }
    return found;
  }

  /** The Problem that the service answered; null if something between answered, or nothing. */
  static Problem problemOf(ApiException fault) {
    try {
      Problem problem = ApiClient.createDefaultObjectMapper().readValue(fault.getResponseBody(), Problem.class);
      return problem.getCode() == null ? null : problem;
    } catch (Exception none) {
      return null;
    }
  }

  /** Whether a repeat may help: there was no answer, or the service says so, or a proxy could not reach it. */
  static boolean mayHelp(ApiException fault) {
    Problem problem = problemOf(fault);
    int status = fault.getCode(); // 0: no answer, or one that is not JSON
    if (fault.getCause() instanceof JsonProcessingException) {
      return false;
    }
    return problem != null ? problem.getRetriable() : status == 0 || status >= 500 || status == 408 || status == 429;
  }

  static String said(ApiException fault) {
    Problem problem = problemOf(fault);
    if (problem != null) {
      return problem.getCode() + ": " + problem.getDetail();
    }
    String what = fault.getCode() == 0 ? String.valueOf(fault.getCause()).lines().findFirst().get() : "HTTP " + fault.getCode();
    return mayHelp(fault) ? what : "UNEXPECTED_ANSWER: it is not a gateway, or a proxy wants a login: " + what;
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

  /** The reason of an acknowledgement: at most 1,024 characters of Unicode. */
  static String reason(String text) {
    String given = new String(String.valueOf(text).getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    return given.substring(0, given.offsetByCodePoints(0, Math.min(1024, given.codePointCount(0, given.length()))));
  }
}
