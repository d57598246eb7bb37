"""Calls from pages in browsers, of the origins that a gateway allows, and by the host names that it allows."""

import httpx
import pytest

from tests.http.calls import good, problem

PAGE = "https://app.example.org"
STRANGER = "https://example.com"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        "SHAREQUEUE_GATEWAY_ALLOW_ORIGINS": f"http://localhost:3000, {PAGE}",
        "SHAREQUEUE_GATEWAY_ALLOW_HOSTS": "gateway,queue.example.org",
        "SHAREQUEUE_GATEWAY_URL": "http://queue-0.internal:8080",
    }


def ask_first(http: httpx.Client, origin: str, method: str, path: str) -> httpx.Response:
    """The preflight of a browser before a page's call."""
    wanted = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "content-type,record-header-a"}
    return http.options(path, headers={"Origin": origin, **wanted})


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/topics/a/records/raw"), ("PATCH", "/v1/topics/a"), ("DELETE", "/v1/topics/a"), ("GET", "/metrics")],
)
def test_a_preflight_lists_the_calls_a_page_may_make(client: httpx.Client, method: str, path: str) -> None:
    allowed = ask_first(client, PAGE, method, path)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert method in allowed.headers["access-control-allow-methods"]
    assert allowed.headers["access-control-allow-headers"] == "content-type,record-header-a"
    refused = ask_first(client, STRANGER, method, path)
    problem(refused, 403, "ORIGIN_NOT_ALLOWED", 42)
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_reads_answers_and_problems(client: httpx.Client, name: str) -> None:
    for body, status in ({"name": name}, 201), ({"name": name}, 409), ({}, 422):
        answer = client.post("/v1/topics", json=body, headers={"Origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert {"acknowledge-failed", "retry-after", "x-request-id"} <= set(exposed)
    for call, status in ("GET /nothing", 404), ("GET /v1/share-groups/g/fetch", 405), ("HEAD /v1/topics", 200):
        answer = client.request(*call.split(), headers={"Origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)
        assert answer.headers["vary"] == "Origin"
    unread = client.get("/v1/topics", headers={"Origin": STRANGER})
    assert "access-control-allow-origin" not in unread.headers
    assert "access-control-allow-origin" not in client.get("/v1/topics").headers


def test_pages_of_origins_that_are_not_allowed_change_nothing(client: httpx.Client, name: str) -> None:
    for origin in (STRANGER, "null", "http://app.example.org"):
        refused = client.post("/v1/topics", json={"name": name}, headers={"Origin": origin})
        problem(refused, 403, "ORIGIN_NOT_ALLOWED", 42)
        assert "access-control-allow-origin" not in refused.headers
    assert client.get(f"/v1/topics/{name}").status_code == 404


@pytest.mark.parametrize("host", ["gateway:8080", "Gateway", "queue.example.org.", "queue-0.internal:18080"])
def test_a_neighbour_is_served_by_an_allowed_name_or_the_gateways_own(
    client: httpx.Client, name: str, host: str
) -> None:
    """The own one is what the other services call it by."""
    good(client.post("/v1/topics", json={"name": name}, headers={"Host": host}), 201)
    own = {"Host": host, "Origin": f"https://{host.lower().removesuffix('.')}"}
    good(client.patch(f"/v1/topics/{name}", json={"partitions": 2}, headers=own))
