"""Conventions of every call: unknown paths and methods, request ids, trace contexts, the cluster token, operations."""

import json
from pathlib import Path

import httpx
import pytest

from sharequeue import __version__
from sharequeue.protocol import apis
from sharequeue.stack.stack import Stack
from sharequeue_http.forms.api import Api, path_of
from tests.http.calls import Gateway, good, problem, wait_until

pytestmark = pytest.mark.both_forms

ALL = [value for value in vars(apis).values() if isinstance(value, Api)]
INTERNAL = [api for api in ALL if api.internal]
PARAMETERS = {"topic": "t", "partition": 0, "group": "g", "member_id": "m1", "transaction": "t-1", "offset": 0}


@pytest.mark.parametrize("path", ["/v1/topic", "/v1/topics/", "/v1%2Ftopics", "/docs/", "/docs/index.html"])
def test_unknown_paths_are_404_problems(gateway: Gateway, path: str) -> None:
    document = problem(gateway.http.get(path), 404, "UNKNOWN_PATH", 42)
    assert "/openapi.json" in document["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/topics", {"GET", "HEAD", "POST"}),
        ("PUT", "/v1/topics/t", {"DELETE", "GET", "HEAD", "PATCH"}),
        ("GET", "/v1/share-groups/g/fetch", {"POST"}),
        ("POST", "/readyz", {"GET", "HEAD"}),
        ("OPTIONS", "/v1/share-groups/g/offsets/reset", {"POST"}),
    ],
)
def test_unknown_methods_are_405_problems_with_allow(
    gateway: Gateway, method: str, path: str, allowed: set[str]
) -> None:
    response = gateway.http.request(method, path)
    problem(response, 405, "INVALID_REQUEST", 42)
    assert set(response.headers["allow"].split(", ")) == allowed


def test_every_answer_forbids_sniffing(gateway: Gateway) -> None:
    for path in ("/v1/topics", "/v1/topics/none", "/v1/nothing", "/", "/docs/pages.css", "/metrics", "/v1/topics?x=1"):
        assert gateway.http.get(path).headers.get_list("x-content-type-options") == ["nosniff"], path


def test_a_coding_in_any_header_of_several_is_refused(gateway: Gateway, name: str) -> None:
    """The last one counted, so a body was taken as it is though another header says that it is not."""
    for codings in (("gzip", "identity"), ("identity", "gzip")):
        headers = [("Content-Type", "application/json"), *(("Content-Encoding", coding) for coding in codings)]
        answer = gateway.http.post(f"/v1/topics/{name}/records", content=b'{"records":[{"value":1}]}', headers=headers)
        problem(answer, 415, "INVALID_REQUEST", 42)


def test_a_group_id_that_is_not_utf8_is_refused(gateway: Gateway) -> None:
    """Otherwise all ids with a bad byte in one place would be one group."""
    for group in ("a%ffb", "a%c3"):
        problem(gateway.http.get(f"/v1/share-groups/{group}/config"), 422, "INVALID_GROUP_ID", 24)


def test_an_encoded_slash_is_part_of_a_name(gateway: Gateway, name: str) -> None:
    """Otherwise deleting the group `a/offsets/t` would make the group `a` forget the topic `t`."""
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "accept") == "applied"
    for path in (f"{name}%2Foffsets%2F{name}", f"{name}%2fx/offsets/{name}", f"{name}%2Fmembers%2Fm1"):
        problem(gateway.http.delete(f"/v1/share-groups/{path}"), 422, "INVALID_GROUP_ID", 24)
    assert gateway.offsets(name) == {(name, 0): (1, 0)}
    problem(gateway.http.get("/v1/share-groups/a%2Fb/config"), 422, "INVALID_GROUP_ID", 24)
    for method, path in (("GET", "%2Fpartitions%2F0%2Frecords"), ("POST", "%2Frecords/records/raw")):
        problem(gateway.http.request(method, f"/v1/topics/{name}{path}"), 422, "INVALID_TOPIC_EXCEPTION", 17)
    problem(
        gateway.http.post(f"/v1/topics/{name}%2Frecords", json={"records": [{"value": 2}]}), 405, "INVALID_REQUEST", 42
    )
    assert gateway.log_ends(name) == [1]


def test_a_member_id_may_hold_a_slash(gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    joining = {"member_id": "host/1%", "member_epoch": 0, "subscribed_topic_names": [name]}
    good(gateway.http.post(f"/v1/share-groups/{name}/heartbeat", json=joining))
    left = gateway.http.delete(path_of(apis.LEAVE_SHARE_GROUP, group=name, member_id="host/1%"))
    assert left.status_code == 204, left.text
    assert good(gateway.http.get(f"/v1/share-groups/{name}"))["members"] == []


@pytest.mark.parametrize("group", ["orders:eu", "größe", "a b", "100%", "a?b", "😀", "[x]", "..."])
def test_group_ids_may_hold_nearly_anything(gateway: Gateway, name: str, group: str) -> None:
    gateway.produce(name, 1)
    path = path_of(apis.FETCH_RECORDS, group=f"{group}-{name}")
    body = {"topics": [name], "max_wait_ms": 0}
    assert good(gateway.http.post(path, json=body))["batches"][0]["last_offset"] == 0
    listed = good(gateway.http.get(path_of(apis.LIST_IN_FLIGHT_RECORDS, group=f"{group}-{name}")))
    assert [partition["topic"] for partition in listed["partitions"]] == [name]


def test_the_request_id_is_echoed_by_success_problem_and_unknown_path(gateway: Gateway) -> None:
    for path in ("/v1/topics", "/v1/topics/no-such-topic", "/nothing"):
        response = gateway.http.get(path, headers={"X-Request-Id": "order-17"})
        assert response.headers["x-request-id"] == "order-17"
        assert response.status_code == 200 or response.json()["request_id"] == "order-17"


def test_a_missing_or_invalid_request_id_is_generated(gateway: Gateway) -> None:
    given = ({}, {}, {"X-Request-Id": ""}, {"X-Request-Id": "r" * 129})
    made = [gateway.http.get("/v1/topics", headers=headers).headers["x-request-id"] for headers in given]
    assert len(set(made)) == 4
    assert all(0 < len(request_id) <= 128 for request_id in made)


def test_logs_name_request_trace_and_cause(gateway: Gateway, shared_stack: Stack, name: str) -> None:
    """Structured logs of the service that a call passed through: the gateway cannot load a partition that is gone."""
    gateway.create_topic(name)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    gateway.configure(name, share_auto_offset_reset="latest")
    headers = {"X-Request-Id": f"request-{name}", "traceparent": trace}
    acknowledgement = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 0, "type": "accept"}
    body = {"member_id": "m1", "acknowledgements": [acknowledgement]}
    gateway.http.post(f"/v1/share-groups/{name}/acknowledge", json=body, headers=headers)

    def line() -> dict[str, str] | None:
        lines = map(json.loads, shared_stack.service("gateway").log_file.read_text().splitlines())
        return next((line for line in lines if line.get("request_id") == f"request-{name}"), None)

    found = wait_until(line)
    assert found["traceparent"] == trace
    assert (found["group_id"], found["topic"], found["partition"]) == (name, name, 0)
    assert found["level"] == "warning"
    assert found["cause"]


def test_every_service_answers_livez_readyz_and_metrics(gateway: Gateway, shared_stack: Stack) -> None:
    for url in shared_stack.addresses.values():
        assert gateway.http.get(f"{url}/livez").json() == {}
        readiness = good(gateway.http.get(f"{url}/readyz"))
        assert readiness["status"] == "ready"
        assert set(readiness["dependencies"].values()) == {"ok"}
        metrics = gateway.http.get(f"{url}/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert "sharequeue_http_request_seconds_count" in metrics.text
        assert f'sharequeue_build_info{{version="{__version__}"}} 1.0' in metrics.text
        helps = [line for line in metrics.text.splitlines() if line.startswith("# HELP ")]
        assert [line for line in helps if "`" in line or "](" in line] == [], "Markdown is for docs/metrics.md"


def urls_of(http: httpx.Client, stack: Stack, api: Api) -> list[str]:
    """Where the services serve an internal call: those that know its path."""
    path = path_of(api, **{key: value for key, value in PARAMETERS.items() if f"{{{key}}}" in api.path})
    urls = [url + path for url in stack.addresses.values()]
    return [url for url in urls if http.request("OPTIONS", url).status_code == 405]


@pytest.mark.parametrize("api", INTERNAL, ids=lambda api: api.operation_id)
def test_internal_calls_need_the_cluster_token(gateway: Gateway, shared_stack: Stack, api: Api) -> None:
    urls = urls_of(gateway.http, shared_stack, api)
    assert urls
    for url in urls:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
            response = gateway.http.request(api.method, url, headers=headers)
            problem(response, 401, "SASL_AUTHENTICATION_FAILED", 58)
            assert response.headers["www-authenticate"] == "Bearer"


def test_the_group_coordinator_needs_the_token_for_client_calls(
    gateway: Gateway, shared_stack: Stack, shared_data_dir: Path
) -> None:
    url = shared_stack.addresses["group coordinator"] + "/v1/topics"
    refused = problem(gateway.http.get(url), 401, "SASL_AUTHENTICATION_FAILED", 58)
    assert refused["detail"].endswith("; clients make it at a gateway")
    problem(gateway.http.post(url, json={"name": "sneaked-in"}), 401, "SASL_AUTHENTICATION_FAILED", 58)
    token = (shared_data_dir / "cluster.token").read_text()
    listed = good(gateway.http.get(url, headers={"Authorization": f"Bearer {token}"}))["topics"]
    assert "sneaked-in" not in [topic["name"] for topic in listed]
