import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import sharequeue.ApiClient;
import sharequeue.ApiException;
import sharequeue.ApiResponse;
import sharequeue.api.GroupsApi;
import sharequeue.api.OperationsApi;
import sharequeue.api.RecordsApi;
import sharequeue.api.ReportsApi;
import sharequeue.api.ScheduledApi;
import sharequeue.api.TopicsApi;
import sharequeue.api.TransactionsApi;
import sharequeue.model.FetchRequest;
import sharequeue.model.FetchedBatch;
import sharequeue.model.Problem;
import sharequeue.model.ProduceRecord;

/** Plays the cases of a file with the generated Java client. The environment says where the gateway is. */
final class Contract {
  private static final List<Class<?>> APIS =
      List.of(
          RecordsApi.class,
          TransactionsApi.class,
          TopicsApi.class,
          GroupsApi.class,
          ReportsApi.class,
          ScheduledApi.class,
          OperationsApi.class);
  private static final ObjectMapper JSON = ApiClient.createDefaultObjectMapper();
  private static final JsonNodeFactory MADE = JsonNodeFactory.instance;
  private static final Pattern NAME = Pattern.compile("\\$\\{(\\w+)\\}");
  private static final String URL = System.getenv("SHAREQUEUE_URL");
  private static final String STUB = System.getenv("SHAREQUEUE_STUB_URL");
  private static final long PATIENCE_NS = Duration.ofSeconds(60).toNanos();
  private static final long IDLE_NS = Duration.ofSeconds(15).toNanos(); // a fetch without an answer ends after 30

  /** The answer is not what the case expects. */
  private static final class Unexpected extends Exception {
    Unexpected(String said) {
      super(said);
    }
  }

  /** A client of the gateway that wants keys: with the good one, with a poor one that has no rights, or with none. */
  private static ApiClient keyed(String name) {
    String url = System.getenv("SHAREQUEUE_GUARDED_URL");
    String token = System.getenv("SHAREQUEUE_KEY_" + name.toUpperCase());
    return token == null ? Producer.client(url, null) : Producer.client(url, () -> token);
  }

  private final Map<String, JsonNode> values = new HashMap<>();

  private Contract(String name) {
    values.put("topic", MADE.textNode(name));
    values.put("group", MADE.textNode(name));
    values.put("large", MADE.textNode("x".repeat(1_100_000)));
  }

  private void play(JsonNode step) throws Exception {
    for (long deadline = System.nanoTime() + PATIENCE_NS; ; Thread.sleep(100)) {
      try {
        playOnce(step);
        return;
      } catch (Unexpected fault) {
        if (!step.path("eventually").asBoolean() || System.nanoTime() > deadline) {
          throw fault;
        }
      }
    }
  }

  private void playOnce(JsonNode step) throws Exception {
    CompletableFuture<Void> other = CompletableFuture.completedFuture(null);
    if (step.has("meanwhile")) {
      JsonNode meanwhile = step.get("meanwhile");
      var later = CompletableFuture.delayedExecutor(meanwhile.get("after_ms").asLong(), TimeUnit.MILLISECONDS);
      other =
          CompletableFuture.runAsync(
              () -> {
                try {
                  play(meanwhile.get("step"));
                } catch (Exception fault) {
                  throw new IllegalStateException(fault);
                }
              },
              later);
    }
    long started = System.nanoTime();
    ObjectNode found = call(step);
    long took = Duration.ofNanos(System.nanoTime() - started).toMillis();
    other.get();
    if (!step.has("expect")) {
      return;
    }
    check(filled(step.get("expect")), found, "");
    if (took < step.path("min_ms").asLong(0)) {
      throw new Unexpected("it took " + took + " ms");
    }
    for (Iterator<Map.Entry<String, JsonNode>> saved = step.path("save").fields(); saved.hasNext(); ) {
      Map.Entry<String, JsonNode> entry = saved.next();
      values.put(entry.getKey(), found.at("/answer/" + entry.getValue().asText().replace('.', '/')));
    }
  }

  /** What the typed answer or the typed Problem holds, with the status. */
  private ObjectNode call(JsonNode step) throws Exception {
    if (step.get("call").asText().equals("streamRecords")) {
      return stream(step);
    }
    String url = step.path("stub").asBoolean() ? STUB : URL;
    ApiClient client = step.has("key") ? keyed(step.get("key").asText()) : Producer.client(url, null);
    client.setReadTimeout(Duration.ofMillis(step.path("cancel_after_ms").asLong(40_000)));
    if (step.has("bytes")) { // generated code would send the name of a file as JSON
      byte[] bytes = Base64.getDecoder().decode(step.get("bytes").asText());
      client.setRequestInterceptor(request -> request.POST(HttpRequest.BodyPublishers.ofByteArray(bytes)));
    }
    Method method = method(step.get("call").asText() + "WithHttpInfo");
    Object api = method.getDeclaringClass().getConstructor(ApiClient.class).newInstance(client);
    ObjectNode found = MADE.objectNode();
    try {
      ApiResponse<?> answer = (ApiResponse<?>) method.invoke(api, arguments(method, step));
      found.put("status", answer.getStatusCode());
      found.set("answer", JSON.valueToTree(answer.getData()));
      return found;
    } catch (InvocationTargetException wrapped) {
      ApiException fault = (ApiException) wrapped.getCause();
      if (step.has("cancel_after_ms") && fault.getCode() == 0) {
        return found;
      }
      Problem problem = Producer.problemOf(fault);
      if (problem == null) {
        throw new Unexpected("not a typed Problem: " + fault);
      }
      found.put("status", fault.getCode());
      found.set("problem", JSON.valueToTree(problem));
      fault.getResponseHeaders().firstValue("Retry-After").ifPresent(after -> found.put("retry_after", after));
      return found;
    }
  }

  /** The first events of a stream, each with its id. Generated code would wait for the end of the stream. */
  private ObjectNode stream(JsonNode step) throws Exception {
    StringBuilder address = new StringBuilder(URL + "/v1/share-groups/");
    address.append(encoded(filled(step.get("path")).get("group"))).append("/stream?");
    filled(step.get("query"))
        .fields()
        .forEachRemaining(entry -> address.append(entry.getKey() + "=" + encoded(entry.getValue()) + "&"));
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(address.toString())).timeout(Duration.ofSeconds(60));
    filled(step.get("headers")).fields().forEachRemaining(entry -> request.header(entry.getKey(), entry.getValue().asText()));
    var answer = HttpClient.newHttpClient().send(request.build(), HttpResponse.BodyHandlers.ofLines());
    ObjectNode found = MADE.objectNode().put("status", answer.statusCode());
    try (Stream<String> lines = answer.body()) {
      if (answer.statusCode() != 200) {
        found.set("problem", JSON.readTree(lines.collect(Collectors.joining())));
        return found;
      }
      int wanted = step.at("/expect/answer/events").size();
      var events = found.putObject("answer").putArray("events");
      String id = "";
      for (Iterator<String> each = lines.iterator(); events.size() < wanted && each.hasNext(); ) {
        String line = each.next();
        if (line.startsWith("id: ")) {
          id = line.substring(4);
        } else if (line.startsWith("data: ")) {
          events.addObject().put("id", id).set("data", JSON.readTree(line.substring(6)));
        }
      }
    }
    return found;
  }

  private static String encoded(JsonNode value) {
    return URLEncoder.encode(value.asText(), StandardCharsets.UTF_8);
  }

  /** The method of an operation that takes its parameters alone. */
  private static Method method(String name) {
    for (Class<?> api : APIS) {
      for (Method method : api.getMethods()) {
        Parameter[] parameters = method.getParameters();
        boolean more = parameters.length > 0 && parameters[parameters.length - 1].getType() == Map.class;
        if (method.getName().equals(name) && !more) {
          return method;
        }
      }
    }
    throw new IllegalArgumentException(name);
  }

  private Object[] arguments(Method method, JsonNode step) throws Exception {
    Map<String, JsonNode> given = new HashMap<>();
    for (String part : List.of("path", "query", "headers")) {
      filled(step.path(part)).fields().forEachRemaining(entry -> given.put(camel(entry.getKey()), entry.getValue()));
    }
    List<Object> arguments = new ArrayList<>();
    for (Parameter parameter : method.getParameters()) {
      JsonNode value = given.get(parameter.getName());
      if (parameter.getType() == File.class) {
        arguments.add(new File("unused"));
      } else if (parameter.getType().getSimpleName().endsWith("Request") || parameter.getName().equals("body")) {
        arguments.add(JSON.treeToValue(filled(step.get("body")), parameter.getType()));
      } else {
        arguments.add(value == null ? null : JSON.treeToValue(value, parameter.getType()));
      }
    }
    return arguments.toArray();
  }

  /** `page_size` and `Idempotency-Key` as names of parameters. */
  private static String camel(String name) {
    String[] words = name.toLowerCase().split("[-_]");
    StringBuilder made = new StringBuilder(words[0]);
    for (String word : Arrays.asList(words).subList(1, words.length)) {
      made.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
    }
    return made.toString();
  }

  private JsonNode filled(JsonNode value) {
    if (value.isTextual()) {
      Matcher whole = NAME.matcher(value.asText());
      if (whole.matches()) {
        return values.get(whole.group(1));
      }
      return MADE.textNode(
          NAME.matcher(value.asText())
              .replaceAll(found -> Matcher.quoteReplacement(values.get(found.group(1)).asText())));
    }
    if (value.isArray()) {
      var made = MADE.arrayNode();
      value.forEach(item -> made.add(filled(item)));
      return made;
    }
    if (value.isObject()) {
      ObjectNode made = MADE.objectNode();
      value.fields().forEachRemaining(entry -> made.set(entry.getKey(), filled(entry.getValue())));
      return made;
    }
    return value;
  }

  /** The producer stores each record once. The worker handles all, in the order of {@code handled}. */
  private void work(JsonNode spec) throws Exception {
    String name = values.get("topic").asText();
    List<ProduceRecord> sent = new ArrayList<>();
    for (JsonNode record : spec.get("records")) {
      sent.add(JSON.treeToValue(record, ProduceRecord.class));
    }
    String trace = spec.path("trace").asText();
    boolean guarded = spec.has("refused");
    ApiClient stub = guarded ? keyed("good") : Producer.client(STUB, null); // the stub loses an answer, and then refuses
    ApiClient plain = guarded ? stub : Producer.client(URL, null);
    Producer producer = new Producer(stub, Duration.ofSeconds(30));
    (trace.isEmpty() ? producer : producer.inject(headers -> headers.put("traceparent", trace))).send(name, sent);
    List<String> handled = Collections.synchronizedList(new ArrayList<>());
    List<String> lost = new ArrayList<>();
    Worker[] worker = new Worker[1];
    Worker.Handler handler =
        (record, batch) -> {
          boolean first = batch.getDeliveryCount() == 1;
          if ("bad".equals(record.getValue()) && first) {
            throw new IllegalStateException("not today" + "…".repeat(1024)); // a reason holds 1,024 characters
          }
          if ("at once".equals(record.getValue()) && first) {
            throw new Worker.Release("not yet \ud800", 0); // which is not the backoff of the group
          }
          if ("refused".equals(record.getValue()) && first) {
            throw new Worker.Release("the stub refuses this", 0);
          }
          if ("interrupt".equals(record.getValue())) {
            Thread.currentThread().interrupt();
            Thread.sleep(1);
          }
          if ("slow".equals(record.getValue())) {
            Thread.sleep(spec.get("slow_ms").asLong());
          }
          Object named = record.getValue() instanceof Number ? "number" : record.getValue();
          named = trace.isEmpty() ? named : record.getHeaders().get("traceparent");
          handled.add(named + " " + batch.getDeliveryCount());
          if (handled.size() == spec.get("records").size()) {
            worker[0].stop();
          }
        };
    Duration lock = Duration.ofMillis(spec.get("lock_duration_ms").asLong());
    worker[0] = new Worker(spec.path("through_stub").asBoolean() ? stub : plain, name, List.of(name), lock, handler);
    worker[0].onError(fault -> lost.add(fault.acknowledgement().getFirstOffset() + " " + fault.code()));
    CompletableFuture.delayedExecutor(60, TimeUnit.SECONDS).execute(worker[0]::stop);
    worker[0].run();
    boolean interrupted = Thread.interrupted();
    if (!handled.equals(texts(spec.path("handled"))) || !lost.equals(texts(spec.path("lost")))) {
      throw new Unexpected("handled: " + handled + ", lost: " + lost);
    }
    if (interrupted != spec.path("interrupted").asBoolean()) {
      throw new Unexpected("interrupted: " + interrupted);
    }
    for (var each = spec.path("refused").fields(); each.hasNext(); ) {
      var entry = each.next();
      meetRefusals(keyed(entry.getKey()), name, handler, texts(entry.getValue()));
    }
    if (interrupted) {
      for (boolean byInterrupt : new boolean[] {true, false}) {
        endIdle(new Worker(stub, name, List.of("empty"), null, handler), byInterrupt);
        endIdle(new Worker(stub, name, List.of("away"), null, handler), byInterrupt);
      }
      meetLoginPage(stub, name, handler);
      endByError(name);
    }
  }

  /** A proxy's login page is no success, and no reason to go on for ever. */
  private static void meetLoginPage(ApiClient stub, String group, Worker.Handler handler) throws Unexpected {
    for (String topic : List.of("login-302", "login-200", "login-401", "login-403", "login-json")) {
      try {
        new Producer(stub, Duration.ofSeconds(30)).send(topic, List.of(new ProduceRecord().value("one")));
        throw new Unexpected(topic + " is taken for a success");
      } catch (ApiException fault) {
        named(fault);
      }
      try {
        new Worker(stub, group, List.of(topic), null, handler).run();
        throw new Unexpected(topic + " is taken for a success");
      } catch (IllegalStateException fault) {
        named(fault);
      }
    }
  }

  /** Without the right a producer and a worker end, each with a code of the gateway. */
  private static void meetRefusals(ApiClient client, String topic, Worker.Handler handler, List<String> codes) throws Unexpected {
    List<String> met = new ArrayList<>();
    try {
      new Producer(client, Duration.ofSeconds(30)).send(topic, List.of(new ProduceRecord().value("one")));
    } catch (ApiException fault) {
      met.add(Producer.problemOf(fault).getCode());
    }
    try {
      new Worker(client, topic, List.of(topic), null, handler).run();
    } catch (IllegalStateException fault) {
      met.add(Producer.problemOf((ApiException) fault.getCause()).getCode());
    }
    if (!met.equals(codes)) {
      throw new Unexpected(met + ", not " + codes);
    }
  }

  /** An Error of a handler ends its worker: what lies behind the record in hand is no attempt. */
  private static void endByError(String topic) throws Exception {
    String group = topic + "-error";
    Worker.Handler handler =
        (record, batch) -> {
          throw new AssertionError("oops");
        };
    try {
      new Worker(Producer.client(URL, null), group, List.of(topic), null, handler).run();
      throw new Unexpected("the worker goes on after an Error");
    } catch (AssertionError expected) {
      ApiClient client = Producer.client(URL, null);
      var request = new FetchRequest().topics(List.of(topic)).memberId("m3").maxWaitMs(0);
      var attempts = new RecordsApi(client).fetchRecords(group, request).getBatches().stream().map(FetchedBatch::getAttempt);
      if (!attempts.toList().equals(List.of(2, 1))) {
        throw new Unexpected("what the handler did not reach counts as an attempt");
      }
    }
  }

  private static void named(Exception fault) throws Unexpected {
    if (!fault.getMessage().contains(STUB + ": UNEXPECTED_ANSWER: ") || !fault.getMessage().contains("wants a login")) {
      throw new Unexpected("it does not say from where: " + fault.getMessage());
    }
  }

  /** A worker that waits for records, or for the service, ends at once. After an interrupt, its thread is interrupted. */
  private static void endIdle(Worker worker, boolean byInterrupt) throws Unexpected {
    Thread here = Thread.currentThread();
    Runnable end = byInterrupt ? here::interrupt : worker::stop;
    CompletableFuture.delayedExecutor(1500, TimeUnit.MILLISECONDS).execute(end);
    long started = System.nanoTime();
    worker.run();
    if (Thread.interrupted() != byInterrupt || System.nanoTime() - started > IDLE_NS) {
      throw new Unexpected("a worker that waits goes on; by an interrupt: " + byInterrupt);
    }
  }

  private static List<String> texts(JsonNode list) {
    List<String> texts = new ArrayList<>();
    list.forEach(each -> texts.add(each.asText()));
    return texts;
  }

  /** Fails if a value that is expected is another one. What is not expected may be anything. */
  private static void check(JsonNode expected, JsonNode found, String place) throws Unexpected {
    boolean missing = found == null || found.isNull() || found.isMissingNode();
    boolean fits;
    if (expected.isNull() || expected.asText().equals("$absent")) {
      fits = missing;
    } else if (expected.asText().equals("$any")) {
      fits = !missing;
    } else if (expected.isArray()) {
      fits = !missing && found.isArray() && found.size() == expected.size();
      for (int index = 0; fits && index < expected.size(); index++) {
        check(expected.get(index), found.get(index), place + "/" + index);
      }
    } else if (expected.isObject()) {
      fits = !missing && found.isObject();
      for (var fields = expected.fields(); fits && fields.hasNext(); ) {
        var field = fields.next();
        check(field.getValue(), found.get(field.getKey()), place + "/" + field.getKey());
      }
    } else if (expected.isNumber()) {
      fits = !missing && found.isNumber() && found.asDouble() == expected.asDouble();
    } else {
      fits = !missing && found.isBoolean() == expected.isBoolean() && found.asText().equals(expected.asText());
    }
    if (!fits) {
      throw new Unexpected(place + " is " + found + ", not " + expected);
    }
  }

  public static void main(String[] arguments) throws Exception {
    int failed = 0;
    JsonNode cases = JSON.readTree(new File(arguments[0]));
    for (JsonNode each : cases) {
      String id = each.get("id").asText();
      Contract contract = new Contract("java-" + id);
      try {
        for (JsonNode step : each.path("steps")) {
          contract.play(step);
        }
        if (each.has("worker")) {
          contract.work(each.get("worker"));
        }
        for (JsonNode step : each.path("then")) {
          contract.play(step);
        }
        System.out.println("ok " + id);
      } catch (Exception fault) {
        failed++;
        System.out.println("FAILED " + id + ": " + fault);
      }
    }
    System.out.println((cases.size() - failed) + " passed, " + failed + " failed");
    System.exit(failed > 0 ? 1 : 0);
  }
}
