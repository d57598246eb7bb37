"""Pages in browsers must not reach a gateway that does not authenticate its callers: `Host`, `Origin`,
`Sec-Fetch-Site`."""

from collections.abc import Iterator
from http.client import HTTPConnection

import msgspec
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, Json, problem

REBOUND = {"Host": "attacker.example:8080"}
STRANGER = "https://attacker.example"
FORM = {"Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}


class Raw:
    """A connection to the gateway whose requests have only the headers that a test gives them."""

    def __init__(self, stack: Stack) -> None:
        self._connection = HTTPConnection(stack.url.removeprefix("http://"), timeout=60)

    def ask(self, call: str, *headers: tuple[str, str], body: bytes = b"") -> tuple[int, Json]:
        method, target = call.split()
        self._connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self._connection.putheader(name, value)
        self._connection.endheaders(body)
        response = self._connection.getresponse()
        document = msgspec.json.decode(response.read())
        if response.status >= 400:
            assert document["request_id"] == response.headers["X-Request-Id"]
        return response.status, document

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def raw(shared_stack: Stack) -> Iterator[Raw]:
    raw = Raw(shared_stack)
    yield raw
    raw.close()


def refused(gateway: Gateway, status: int) -> float:
    return gateway.metrics().get(f'sharequeue_http_refused_total{{status="{status}"}}', 0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/topics"),
        ("DELETE", "/v1/topics/{name}"),
        ("POST", "/v1/topics/{name}/records/raw"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("GET", "/docs"),
        ("GET", "/docs/docs.js"),
        ("GET", "/ui/groups/g"),
        ("GET", "/nothing"),
        ("OPTIONS", "/v1/topics"),
        ("PUT", "/v1/topics"),
    ],
)
def test_a_rebound_host_name_is_refused(gateway: Gateway, name: str, method: str, path: str) -> None:
    gateway.create_topic(name)
    before = refused(gateway, 421)
    response = gateway.http.request(method, path.format(name=name), headers={**REBOUND, "X-Request-Id": f"of-{name}"})
    document = problem(response, 421, "HOST_NOT_ALLOWED", 42)
    assert (document["retriable"], document["definite"]) == (False, True)
    assert document["request_id"] == f"of-{name}"
    assert "'attacker.example:8080'" in document["detail"]
    assert "SHAREQUEUE_GATEWAY_ALLOW_HOSTS" in document["detail"]
    assert gateway.log_ends(name) == [0]
    assert refused(gateway, 421) == before + 1


def test_an_html_form_cannot_create_a_topic(gateway: Gateway, name: str) -> None:
    assert gateway.http.post(f"/v1/topics/{name}/records/raw", content=b"x", headers=FORM).status_code == 403
    problem(gateway.http.get(f"/v1/topics/{name}"), 404, "UNKNOWN_TOPIC_OR_PARTITION", 3)


@pytest.mark.parametrize("call", ["PATCH /v1/topics/{}", "DELETE /v1/topics/{}", "POST /v1/share-groups/{}/fetch"])
def test_each_call_that_changes_or_acquires_checks_the_origin(gateway: Gateway, name: str, call: str) -> None:
    gateway.produce(name, 1)
    method, path = call.format(name).split()
    response = gateway.http.request(method, path, headers={"Origin": STRANGER, "Content-Type": "application/json"})
    problem(response, 403, "ORIGIN_NOT_ALLOWED", 42)
    assert gateway.acquire(name, name) == ["0-0×1"]


def test_the_body_of_a_refused_request_is_not_the_next_request(gateway: Gateway, raw: Raw, name: str) -> None:
    gateway.create_topic(name)
    own = ("Host", "127.0.0.1")
    inner = f"POST /v1/topics/{name}/records/raw HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nx\r\n"
    for _ in range(3):
        form = (own, ("Origin", STRANGER), ("Content-Type", "text/plain"))
        assert raw.ask(f"POST /v1/topics/{name}/records/raw", *form, body=inner.encode() * 5000)[0] == 403
        assert raw.ask("GET /livez", own)[0] == 200
    assert gateway.log_ends(name) == [0]


def test_other_services_do_not_check_the_host(shared_stack: Stack) -> None:
    """A cluster calls them by names of its own; each call with an effect needs the cluster token."""
    for name, url in shared_stack.addresses.items():
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        connection.request("GET", "/livez", headers={"Host": "coordinator:8081"})
        assert connection.getresponse().status == (421 if name == "gateway" else 200)
        connection.close()
