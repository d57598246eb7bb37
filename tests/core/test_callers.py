"""The requests that a gateway serves: by their Host, and by the origin of the page that made them."""

import pytest
from sharequeue_gateway.settings import PREFIX, Settings

from sharequeue_http.origins import Callers, host_of_url, hosts_of, origins_of

GATEWAY = Callers([host_of_url("http://Queue.internal:8080"), *hosts_of("gateway,my_queue.example.org")])
PAGES = ["https://app.example.org", "http://localhost:3000", "HTTPS://Other.Example.org:443"]
SHARED = Callers(origins=origins_of(",".join(PAGES)))
OPEN = Callers(origins=["*"])
LITERAL = "127.0.0.1:8080"


def verdict(callers: Callers, method: str, **headers: str | list[str]) -> int | None:
    """The status of the refusal; None where the request is served. `sec_fetch_site` is the header Sec-Fetch-Site."""
    sent = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    refusal = callers.refusal(method, [(b"accept", b"*/*"), *sent], {b"accept": b"*/*", **dict(sent)})
    if refusal is not None:
        assert not refusal.error.retriable
        assert refusal.definite
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[2001:DB8::1]:443",
        "[fe80::1%eth0]:8080",
        "localhost",
        "LocalHost.:8080",
        "Queue.INTERNAL.:18080",
        "my_queue.example.org",
        "127.0.0.1:",
    ],
)
def test_addresses_localhost_and_names_of_the_gateway_are_served(host: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert verdict(GATEWAY, method, host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "127.0.0.1.attacker.example",
        "notlocalhost",
        "gateway..",
        "127.1",
        "0x7f000001",
        "%6cocalhost",
        "127.0.0.1,127.0.0.1",
        ".",
        "a" * 5000,
    ],
)
def test_any_other_name_is_refused_with_421(host: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        assert verdict(GATEWAY, method, host=host) == 421


@pytest.mark.parametrize(
    "host",
    [
        "",
        "a b",
        "http://127.0.0.1",
        "127.0.0.1:port",
        "127.0.0.1:65536",
        "::1",
        "[::1",
        "[127.0.0.1]",
        "[::g]",
        "ärger",
        "localhost\x00",
    ],
)
def test_a_malformed_host_is_refused_with_400(host: str) -> None:
    assert verdict(GATEWAY, "GET", host=host) == 400


def test_a_request_needs_exactly_one_host() -> None:
    assert verdict(GATEWAY, "GET") == 400
    assert verdict(GATEWAY, "GET", host=[LITERAL, LITERAL]) == 400
    assert verdict(GATEWAY, "GET", host=["attacker.example", LITERAL]) == 400
    assert verdict(GATEWAY, "GET", host=LITERAL, accept=["text/plain", "text/html"]) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("[::1]:8080", "http://[0:0::1]:8080"),
        ("gateway:8080", "http://gateway:8080"),
        ("my_queue.example.org", "https://my_queue.example.org"),
        ("my_queue.example.org:8443", "https://my_queue.example.org:8443"),
        ("My_Queue.example.org.", "https://my_queue.example.org"),
    ],
)
def test_pages_of_the_requested_host_may_call_by_either_scheme(host: str, origin: str) -> None:
    for method in ("POST", "PATCH", "DELETE"):
        assert verdict(GATEWAY, method, host=host, origin=origin, sec_fetch_site="same-origin") is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (LITERAL, "https://attacker.example"),
        (LITERAL, "null"),
        (LITERAL, "http://127.0.0.1:3000"),
        (LITERAL, "http://localhost:8080"),
        (LITERAL, "file://"),
        (LITERAL, "chrome-extension://127.0.0.1:8080"),
        (LITERAL, "http://127.0.0.1:8080 http://attacker.example"),
        ("gateway", "https://gateway:8443"),
        ("gateway:443", "http://gateway"),
        (LITERAL, "http://" + "a" * 5000),
    ],
)
def test_pages_of_other_origins_may_only_read(host: str, origin: str) -> None:
    for method in ("POST", "PATCH", "DELETE", "PUT", "BREW"):
        assert verdict(GATEWAY, method, host=host, origin=origin) == 403
    for method in ("GET", "HEAD", "OPTIONS"):
        assert verdict(GATEWAY, method, host=host, origin=origin) is None


def test_a_request_with_two_origins_is_refused() -> None:
    own = f"http://{LITERAL}"
    for origins in ([own, "https://attacker.example"], ["https://attacker.example", own], [own, own]):
        assert verdict(GATEWAY, "POST", host=LITERAL, origin=origins) == 400


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("", 403), ("same-origin", None), ("none", None)]
)
def test_without_an_origin_sec_fetch_site_decides(site: str, status: int | None) -> None:
    assert verdict(GATEWAY, "POST", host=LITERAL, sec_fetch_site=site) == status
    assert verdict(GATEWAY, "GET", host=LITERAL, sec_fetch_site=site, sec_fetch_mode="navigate") is None
    assert verdict(GATEWAY, "POST", host=LITERAL, sec_fetch_site=site, origin=f"http://{LITERAL}") is None
    assert verdict(SHARED, "POST", host=LITERAL, sec_fetch_site=site) == status
    assert verdict(OPEN, "POST", host=LITERAL, sec_fetch_site=site) is None


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://app.example.org", None),
        ("https://app.example.org:443", None),
        ("http://localhost:3000", None),
        ("http://app.example.org", 403),
        ("https://app.example.org:8443", 403),
        ("https://app.example.org.attacker.example", 403),
        ("null", 403),
    ],
)
def test_pages_of_allowed_origins_may_call(origin: str, status: int | None) -> None:
    assert verdict(SHARED, "POST", host=LITERAL, origin=origin, sec_fetch_site="cross-site") == status
    assert verdict(OPEN, "POST", host=LITERAL, origin=origin, sec_fetch_site="cross-site") is None
    sent = dict(SHARED.answer_headers(origin.encode()))
    assert sent.get(b"access-control-allow-origin") == (None if status else origin.encode())
    assert sent.get(b"vary") == (None if status else b"Origin")
    assert dict(OPEN.answer_headers(origin.encode()))[b"access-control-allow-origin"] == b"*"
    assert GATEWAY.answer_headers(origin.encode()) == ()
    asked = {"access_control_request_method": "DELETE", "host": LITERAL, "origin": origin}
    assert verdict(SHARED, "OPTIONS", **asked) == status
    assert verdict(OPEN, "OPTIONS", **asked) is None
    assert verdict(GATEWAY, "OPTIONS", **asked) == 403


def test_allowed_origins_do_not_open_other_hosts() -> None:
    origin = "https://app.example.org"
    for callers in (SHARED, OPEN):
        assert verdict(callers, "POST", host="attacker.example", origin=origin) == 421
        assert verdict(callers, "OPTIONS", host="attacker.example", origin=origin) == 421


def test_a_preflight_needs_an_origin_and_a_requested_method() -> None:
    asked = {b"origin": b"https://app.example.org", b"access-control-request-method": b"PATCH"}
    sent = dict(SHARED.preflight("OPTIONS", {**asked, b"access-control-request-headers": b"content-type"}) or ())
    assert sent[b"access-control-allow-headers"] == b"content-type"
    assert b"PATCH" in sent[b"access-control-allow-methods"]
    assert SHARED.preflight("OPTIONS", asked) is not None
    assert SHARED.preflight("POST", asked) is None
    for missing in asked:
        assert SHARED.preflight("OPTIONS", {name: value for name, value in asked.items() if name != missing}) is None


@pytest.mark.parametrize("setting", ["app.example.org", "https://", "https://app.example.org/", "https://a, b", "null"])
def test_an_invalid_allowed_origin_stops_the_start(setting: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        origins_of(setting)
    with pytest.raises(ValueError, match=r"SHAREQUEUE_GATEWAY_ALLOW_ORIGINS: .* is not an origin"):
        settings(allow_origins=setting).check(PREFIX)


@pytest.mark.parametrize(
    "setting", ["gateway:8080", "http://gateway", "*", "*.example.org", "a b", "a,b/", "ärger", ".a"]
)
def test_an_invalid_allowed_host_stops_the_start(setting: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        hosts_of(setting)
    with pytest.raises(ValueError, match=r"SHAREQUEUE_GATEWAY_ALLOW_HOSTS: .* is not a host name"):
        settings(allow_hosts=setting).check(PREFIX)


@pytest.mark.parametrize("url", ["gateway:8080", "gateway", "http://", "http://a b", "http://[::1", "ftp://gateway"])
def test_a_gateway_url_without_a_host_stops_the_start(url: str) -> None:
    with pytest.raises(ValueError, match="SHAREQUEUE_GATEWAY_URL"):
        settings(url=url).check(PREFIX)


def test_allowed_hosts_and_origins_are_comma_separated() -> None:
    assert hosts_of("") == origins_of("") == origins_of(" , ") == []
    assert hosts_of("Gateway, queue.example.org.,my_queue") == ["gateway", "queue.example.org", "my_queue"]
    assert origins_of("*") == ["*"]
    settings(url="https://queue.example.org/base", allow_hosts="a,b", allow_origins="*").check(PREFIX)


def settings(**given: str) -> Settings:
    needed = dict.fromkeys(("database_url", "coordinator_url", "share_coordinator_url"), "x")
    return Settings(**needed, redis_url="redis://x", cluster_token="x" * 16, **given)


def test_the_caches_of_headers_are_bounded() -> None:
    callers = Callers(origins=["https://app.example.org"])
    long = "a" * 300
    assert verdict(callers, "POST", host=long, origin=f"https://{long}") == 421
    assert verdict(callers, "POST", host=f"{long}.localhost", origin=f"https://{long}.localhost") is None
    assert verdict(callers, "POST", host=LITERAL, origin=f"https://{long}") == 403
    assert callers._host_known.cache_info().currsize == 1
    assert callers._origin_known.cache_info().currsize == 0
    for number in range(5000):
        host, origin = f"h{number}.example", f"https://o{number}.example"
        assert verdict(callers, "POST", host=host) == 421
        assert verdict(callers, "POST", host=LITERAL, origin=origin) == 403
    for kept in (callers._host_known, callers._origin_known):
        assert kept.cache_info().currsize <= 256


CHROMIUM = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
FAR = "10.0.0.1:8080"


@pytest.mark.parametrize(
    "browser",
    [
        {"user_agent": CHROMIUM},
        {"user_agent": "mozilla/5.0"},
        {"sec_ch_ua": '"Chromium";v="156"'},
        {"sec_fetch_dest": "empty"},
        {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
    ],
)
@pytest.mark.parametrize(
    ("proof", "status"),
    [
        ({}, 403),
        ({"referer": ""}, 403),
        ({"referer": "http://10.0.0.2/page"}, 403),
        ({"referer": "http://10.0.0.1:3000/page"}, 403),
        ({"referer": "http://10.0.0.1:8080.attacker.example/"}, 403),
        ({"referer": "http://10.0.0.1:8080@attacker.example/"}, 403),
        ({"referer": "about:blank"}, 403),
        ({"referer": "http://10.0.0.1:8080/docs?x=http://attacker.example/"}, None),
        ({"referer": "https://10.0.0.1:8080"}, None),
        ({"sec_fetch_site": "same-origin"}, None),
        ({"sec_fetch_site": "none"}, None),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": f"http://{FAR}"}, None),
        ({"origin": "http://10.0.0.2", "referer": f"http://{FAR}/"}, 403),
    ],
)
def test_a_browser_has_to_prove_where_its_page_is_from(
    browser: dict[str, str], proof: dict[str, str], status: int | None
) -> None:
    """As on an address that is not loopback by plain http, where browsers send no Sec-Fetch-Site."""
    assert verdict(GATEWAY, "POST", host=FAR, **browser, **proof) == status
    assert verdict(GATEWAY, "GET", host=FAR, **browser, **proof) is None
    assert verdict(OPEN, "POST", host=FAR, **browser, **proof) is None


def test_a_referer_of_an_allowed_page_is_a_proof() -> None:
    for referer, status in ("https://app.example.org/a/b", None), ("https://app.example.org.attacker.example/", 403):
        assert verdict(SHARED, "POST", host=FAR, user_agent=CHROMIUM, referer=referer) == status


@pytest.mark.parametrize("agent", ["curl/8.0", "python-httpx/0.28", "Java/17.0.1", "node", "Go-http-client/1.1", ""])
def test_a_program_needs_no_proof(agent: str) -> None:
    java = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
    assert verdict(GATEWAY, "POST", host=FAR, user_agent=agent, accept=java) is None


def test_the_fetch_of_node_is_no_browser() -> None:
    assert verdict(GATEWAY, "POST", host=FAR, user_agent="node", sec_fetch_mode="cors", accept="*/*") is None
