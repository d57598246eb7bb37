import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/**
 * The JDK's HttpClient, which offers HTTP/2, through produce, fetch and acknowledge. Arguments: the gateway's URL, a topic.
 * The JDK reads no JSON: the answers are compared as texts.
 */
final class JdkClient {
  private static final HttpClient CLIENT = HttpClient.newHttpClient();

  private static String call(String url, String body) throws Exception {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(url))
            .header("Content-Type", "application/json")
            .timeout(Duration.ofSeconds(30))
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
    HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() != 200) {
      throw new IllegalStateException(url + ": " + answer.statusCode() + " " + answer.body());
    }
    return answer.body();
  }

  private static void expect(String answer, String part) {
    if (!answer.contains(part)) {
      throw new IllegalStateException("expected " + part + " in: " + answer);
    }
  }

  public static void main(String[] arguments) throws Exception {
    String topic = arguments[1];
    String group = arguments[0] + "/v1/share-groups/" + topic;
    String fetch = "{\"topics\":[\"" + topic + "\"],\"member_id\":\"jdk\",\"max_wait_ms\":%d}";
    String accept =
        "{\"member_id\":\"jdk\",\"acknowledgements\":[{\"topic\":\"" + topic + "\",\"partition\":0,"
            + "\"first_offset\":0,\"last_offset\":1,\"delivery_count\":1,\"type\":\"accept\"}]}";
    call(arguments[0] + "/v1/topics/" + topic + "/records", "{\"records\":[{\"value\":\"one\"},{\"value\":\"two\"}]}");
    String fetched = call(group + "/fetch", fetch.formatted(5000));
    expect(fetched, "\"value\":\"one\"");
    expect(fetched, "\"value\":\"two\"");
    expect(call(group + "/acknowledge", accept), "\"failed_count\":0");
    expect(call(group + "/fetch", fetch.formatted(0)), "\"batches\":[]");
  }
}
