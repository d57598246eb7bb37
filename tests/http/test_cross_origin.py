"""Calls from pages in browsers, of the origins that a gateway is told to allow."""

import httpx
import pytest
from sharequeue_gateway.cross_origin import origins_of
from sharequeue_gateway.settings import Settings

from tests.http.calls import Gateway

PAGE = "https://app.example.org"
STRANGER = "https://example.com"


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_ALLOW_ORIGINS": f"http://localhost:3000, {PAGE}"}


def ask_first(http: httpx.Client, origin: str, method: str, path: str) -> httpx.Response:
    """What a browser asks before a page's call."""
    wanted = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": "content-type,record-header-a"}
    return http.options(path, headers={"Origin": origin, **wanted})


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/topics/a/records/raw"), ("PATCH", "/v1/topics/a"), ("DELETE", "/v1/topics/a"), ("GET", "/metrics")],
)
def test_a_browser_is_told_what_a_page_may_call(client: httpx.Client, method: str, path: str) -> None:
    allowed = ask_first(client, PAGE, method, path)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert method in allowed.headers["access-control-allow-methods"]
    assert allowed.headers["access-control-allow-headers"] == "content-type,record-header-a"
    refused = ask_first(client, STRANGER, method, path)
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_reads_answers_and_problems(client: httpx.Client, name: str) -> None:
    for body, status in ({"name": name}, 201), ({"name": name}, 409), ({}, 422):
        answer = client.post("/v1/topics", json=body, headers={"Origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        told = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert {"acknowledge-failed", "retry-after", "x-request-id"} <= set(told)
    unread = client.get("/v1/topics", headers={"Origin": STRANGER})
    assert "access-control-allow-origin" not in unread.headers
    assert "access-control-allow-origin" not in client.get("/v1/topics").headers


def test_no_page_may_call_unless_it_was_allowed(gateway: Gateway) -> None:
    assert ask_first(gateway.http, PAGE, "POST", "/v1/topics").status_code == 405
    assert "access-control-allow-origin" not in gateway.http.get("/v1/topics", headers={"Origin": PAGE}).headers


@pytest.mark.parametrize("setting", ["app.example.org", "https://", "https://app.example.org/", "https://a, b"])
def test_what_is_no_origin_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        origins_of(setting)


def test_a_gateway_with_a_setting_that_is_no_origin_does_not_start() -> None:
    needed = dict.fromkeys(("database_url", "redis_url", "coordinator_url", "share_coordinator_url"), "x")
    settings = Settings(**needed, cluster_token="x", allow_origins="app.example.org")
    with pytest.raises(ValueError, match=r"SHAREQUEUE_GATEWAY_ALLOW_ORIGINS: 'app\.example\.org' is no origin"):
        settings.check()


def test_all_origins() -> None:
    assert origins_of("*") == ["*"]
    assert origins_of("") == []
