"""The pages for people, `/ui` and `/docs`. A browser gets all of them from the gateway, and shows them in no frame."""

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest
from sharequeue_gateway.http import pages
from sharequeue_gateway.http.pages import ui

from sharequeue.stack.stack import Stack
from sharequeue_http.application.app import App
from tests.http.calls import Gateway, good, problem
from tests.http.client_calls import in_event_loop

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
VIEWS = (
    "/ui",
    "/ui/",
    "/ui/topics/a%2Eb",
    "/ui/groups/a%20b",
    "/ui/groups/%3Cscript%3E/dead-letters",
    "/ui/transactions",
)
PAGES = ("/docs", *VIEWS)
DOCS = ("/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js", "/docs/pages.css", "/docs/docs.js")
ASSETS = (*DOCS, "/ui/app.js", "/ui/ui.css", "/ui/mark.svg", "/ui/vendor/preact.js", "/ui/settings.json")
LIGHT = 200_000
"""Bytes of all files that `/ui` loads."""
LARGEST = 3 << 20


def test_an_application_refuses_middleware() -> None:
    """No middleware would see the calls: they are served past ASGI."""
    with pytest.raises(RuntimeError, match="put a proxy before the service"):
        App("a service", "").add_middleware(object)


class Links(HTMLParser):
    """The src and href of a page, and what a policy without 'unsafe-inline' would not run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.inline: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name in ("src", "href")]
        self.inline += [name for name, _ in attrs if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.inline.append(tag)


def policy(header: str) -> dict[str, str]:
    return dict(entry.strip().partition(" ")[::2] for entry in header.split(";"))


@pytest.mark.parametrize("path", PAGES)
def test_everything_that_a_page_names_comes_from_the_gateway(gateway: Gateway, path: str) -> None:
    """So the pages work without the internet, and behind a proxy at any path."""
    page = gateway.http.get(path, headers=BROWSER)
    links = Links(page.text)
    assert links.inline == []
    targets = [target for target in links.targets if target != "data:,"]
    assert len(targets) >= 4
    for target in targets:
        assert not target.startswith("/"), "absolute links would miss a proxy's prefix"
        assert "//" not in target
        assert gateway.http.get(urljoin(path, target)).status_code == 200, target


def test_the_reference_asks_for_the_document_alone(gateway: Gateway) -> None:
    """Swagger UI could take another document from the address of the page, and show it to a validator elsewhere."""
    script = gateway.http.get("/docs/docs.js").text
    assert re.search(r'\burl: "openapi\.json"', script)
    for option in ("queryConfigEnabled: false", "validatorUrl: null", "persistAuthorization: false"):
        assert option in script
    assert "//" not in re.sub(r"^//.*$", "", script, flags=re.MULTILINE)
    styles = gateway.http.get("/docs/swagger-ui.css").text + gateway.http.get("/docs/pages.css").text
    assert not re.search(r"""url\(["']?(?!["']?data:)|@import""", styles)
    assert "openapi" in good(gateway.http.get(urljoin("/docs", "openapi.json")))


@pytest.mark.parametrize("path", [*PAGES, *ASSETS])
def test_pages_run_nothing_else_and_are_in_no_frame(gateway: Gateway, path: str) -> None:
    headers = gateway.http.get(path, headers=BROWSER).headers
    assert headers["x-content-type-options"] == "nosniff"
    allowed = policy(headers["content-security-policy"])
    assert allowed["default-src"] == "'none'"
    assert allowed["frame-ancestors"] == "'none'"
    assert allowed["script-src"] == allowed["connect-src"] == allowed["style-src"] == "'self'"
    assert (allowed["base-uri"], allowed["form-action"]) == ("'none'", "'none'")
    assert "unsafe" not in str(allowed)
    assert "*" not in str(allowed)
    assert "access-control-allow-origin" not in headers


def test_the_root_leads_to_the_page(gateway: Gateway) -> None:
    answer = gateway.http.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "ui")


def test_every_address_of_the_page_is_the_same_page(gateway: Gateway) -> None:
    """A name in the address is not in the answer, and only the way to the files differs."""
    first, *others = (gateway.http.get(view) for view in VIEWS)
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    assert len({re.sub(r'"(ui/)?(\.\./)*', '"', each.text) for each in (first, *others)}) == 1
    assert "require-trusted-types-for 'script'" in first.headers["content-security-policy"]


def test_the_page_is_light_and_imports_nothing_from_elsewhere(gateway: Gateway) -> None:
    total = 0
    for address, _, kind in ui.contents(False):
        if kind not in ui.KINDS.values():
            continue
        text = gateway.http.get(address).text
        total += len(text.encode())
        assert not re.search(r"""(?<![\w-])(from|import\(?)\s*["'](?!\./)""", text), address
        assert not re.search(r"""https?://(?!www\.w3\.org/)""", text), address
        for imported in re.findall(r"""from\s*["'](\./[^"']+)["']""", text):
            assert gateway.http.get(urljoin(address, imported)).status_code == 200, imported
    assert 50_000 < total <= LIGHT


def test_the_page_knows_each_setting(gateway: Gateway, name: str) -> None:
    """Their defaults are those that a new topic and a new group have."""
    told = good(gateway.http.get("/ui/settings.json"))
    gateway.create_topic(name)
    assert good(gateway.http.get(f"/v1/topics/{name}"))["config"] == defaults(told["topic"], name)
    assert good(gateway.http.get(f"/v1/share-groups/{name}/config")) == defaults(told["group"], name)
    assert all(setting["meaning"] for kind in told.values() for setting in kind.values())


def defaults(settings: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    return {each: setting["default"].replace("<group>", name) for each, setting in settings.items()}


@pytest.mark.parametrize("path", [*PAGES, *ASSETS])
def test_pages_take_get_and_head_alone(gateway: Gateway, path: str) -> None:
    whole = gateway.http.get(path, headers={"X-Request-Id": "page-1"})
    assert 0 < len(whole.content) < LARGEST
    assert whole.headers["x-request-id"] == "page-1"
    head = gateway.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers.get("content-length") in (None, str(len(whole.content)))
    for method in ("POST", "PUT", "DELETE"):
        refused = gateway.http.request(method, path)
        problem(refused, 405, "INVALID_REQUEST", 42)
        assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", [*PAGES, *ASSETS])
def test_a_file_that_the_browser_has_is_not_sent_again(gateway: Gateway, path: str) -> None:
    whole = gateway.http.get(path)
    for known in (whole.headers["etag"], f'"other", {whole.headers["etag"]}', "*"):
        same = gateway.http.get(path, headers={"If-None-Match": known})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == whole.headers["etag"]
        assert same.headers["cache-control"] == whole.headers["cache-control"]
    assert gateway.http.get(path, headers={"If-None-Match": '"other"'}).content == whole.content


@pytest.mark.parametrize("path", ["__init__.py", "main.py", "..%2f__init__.py", "%2e%2e/app.py", "docs.html", ""])
def test_no_other_file_is_served(gateway: Gateway, path: str) -> None:
    problem(gateway.http.get(f"/docs/{path}"), 404, "UNKNOWN_PATH", 42)
    if path:
        problem(gateway.http.get(f"/ui/{path}"), 404, "UNKNOWN_PATH", 42)


def test_coordinators_have_no_pages(gateway: Gateway, shared_stack: Stack) -> None:
    for name in ("group coordinator", "share coordinator"):
        for path in PAGES:
            problem(gateway.http.get(shared_stack.addresses[name] + path), 404, "UNKNOWN_PATH", 42)


def test_the_pages_say_nothing_to_a_rebound_host(gateway: Gateway) -> None:
    for path in PAGES:
        problem(gateway.http.get(path, headers={"Host": "attacker.example"}), 421, "HOST_NOT_ALLOWED", 42)


@in_event_loop
async def test_a_gateway_without_swagger_ui_has_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts all the same, with `/ui`."""
    monkeypatch.setattr(pages, "PACKAGE", "a-package-that-nobody-has")
    app = App("sharequeue", "")
    pages.serve_pages(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=60) as client:
        for path in ("/docs", *DOCS):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/ui")).status_code == 200
