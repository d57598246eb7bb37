"""`make browser-test`: the pages of a gateway in a real Chromium, Debian's.

The reference shows every call of the document and makes one, under its own policy and without a request to anybody
else. A page of another site cannot show it in a frame, and the address of the page cannot make it load another
document. Such a page changes and acquires nothing, whether it uses `fetch`, a form, a sandboxed frame or a name that
leads to the gateway; its links work.
`far` has the same at an address that is not loopback.
`EventSource` reads a stream, as docs/streams.md shows.
`ui` plays the page `/ui`.
`--smoke` checks `/` and the calls of a script alone.
"""

import base64
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from sharequeue.stack.stack import Stack, temporary_stack
from tests.browser import far, ui
from tests.browser.chromium import Page, browser
from tests.compose.engine import EngineError, install_packages
from tests.system.test_readme import blocks

TOUR = """(async () => {
  const call = async (path, body) => {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(`/v1/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  await call("topics/tour/records", { records: [{ value: "one" }, { value: "two" }] });
  const wanted = { topics: ["tour"], member_id: "browser", max_wait_ms: 5000 };
  const [batch] = (await call("share-groups/tour/fetch", wanted)).batches;
  const { topic, partition, first_offset, last_offset, delivery_count } = batch;
  const accept = { topic, partition, first_offset, last_offset, delivery_count, type: "accept" };
  const accepted = await call("share-groups/tour/acknowledge", { member_id: "browser", acknowledgements: [accept] });
  const again = await call("share-groups/tour/fetch", { ...wanted, max_wait_ms: 0 });
  return [batch.records.map((record) => record.value), accepted.failed_count, again.batches];
})()"""
PHONE = 390
"""CSS pixels across."""
SEEN = """
  window.seen = []; window.ends = []; window.ids = [];
  source.addEventListener("message", ({ data, lastEventId }) => {
    window.ids.push(lastEventId);
    for (const batch of JSON.parse(data).batches) {
      for (const { offset } of batch.records) window.seen.push([offset, batch.delivery_count]);
    }
  });
  for (const kind of ["replaced", "closed"]) source.addEventListener(kind, () => window.ends.push(kind));
"""
DOCS = Path(__file__).parents[2] / "docs"
ENDLESS = ("streamRecords",)
FIRST = "produceRecords"
ANSWERED = "Failed to load resource: the server responded with a status of"
"""What Chromium says of a refusal."""
REFUSED = {
    *("acknowledgeRecords", "createTopic", "deleteTopic", "deleteShareGroup", "deleteShareGroupOffsets"),
    *("leaveShareGroup", "readRecords", "listShareGroupOffsets", "listInFlightRecords", "rotateKey", "revokeKey"),
    *("commitTransaction", "abortTransaction", "terminateTransaction", "describeTransaction"),
    "changeRecord",
}
"""Calls that a stack may refuse with 401, 404 or 409 in which nothing was fetched and no transaction begun: what they
name is not there, or there already."""
UNFIT = {
    "listRecordBatches": "the call before has deleted the records at its offset",
    "replaceRecordBatches": "its batch is the newest one, which is not compacted",
    "removeAcls": "it names no right",
}
"""Calls that a stack may refuse with 422, and why."""
METHODS = ("get", "post", "put", "patch", "delete")


def chromium() -> str:
    """The program. Raises: EngineError: there is none."""
    found = shutil.which("chromium")
    if found is None:
        if os.geteuid() != 0:
            raise EngineError("Chromium is needed: put chromium into PATH, or install Debian's package")
        install_packages("chromium")
        found = shutil.which("chromium")
        assert found is not None
    return found


class Stranger:
    """Another site. `asked`: the paths that a browser asked it for."""

    def __init__(self, page: str) -> None:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.asked = asked
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self.server.server_port}"


@contextmanager
def stranger(page: str) -> Iterator[Stranger]:
    site = Stranger(page)
    threading.Thread(target=site.server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        site.server.shutdown()
        site.server.server_close()


def execute(page: Page, operation: Any, body: Path | None = None) -> str:
    """Press Execute of a call as `/docs` offers it, with a file as its body. Returns: where the call is on the page."""
    at = f"#operations-{operation['tags'][0]}-{operation['operationId']}"
    for button in (".opblock-summary-control", ".try-out__btn", *(["input[type=file]"] if body else ()), ".execute"):
        page.wait(f"document.querySelector('{at} {button}') !== null")
        if button.startswith("input"):
            found = page.call("Runtime.evaluate", expression=f"document.querySelector('{at} {button}')")["result"]
            page.call("DOM.setFileInputFiles", files=[str(body)], objectId=found["objectId"])
        else:
            page.run(f"document.querySelector('{at} {button}').click()")
    return at


def press(page: Page, operation: Any, body: Path | None = None) -> int:
    """As `execute`. Returns: the status of the answer."""
    at = execute(page, operation, body)
    answered = f"{at} .live-responses-table tbody .response-col_status"
    status = page.wait(f"document.querySelector('{answered}')?.innerText")
    page.run(f"document.querySelector('{at} .opblock-summary-control').click()")
    return int(status.split()[0])


def offered(document: Any) -> Iterator[Any]:
    """The calls that can be tried without a file and have an end: FIRST, and last those that delete."""
    calls = [(method, each) for methods in document["paths"].values() for method, each in methods.items()]
    for _, operation in sorted(calls, key=lambda call: (call[0] == "delete", call[1]["operationId"] != FIRST)):
        kinds = operation.get("requestBody", {}).get("content", {"application/json": {}})
        if "application/json" in kinds and operation["operationId"] not in ENDLESS:
            yield operation


def check_file_and_stream(page: Page, url: str, file: Path) -> None:
    """`/docs` sends a file as a raw record, and opens the stream, whose answer has no end: the page is left."""
    document = httpx.get(f"{url}/openapi.json").json()
    operations = {each["operationId"]: each for methods in document["paths"].values() for each in methods.values()}
    file.write_bytes(b"a file")
    page.open(f"{url}/docs")
    assert press(page, operations[FIRST]) == 200
    assert press(page, operations["produceRawRecord"], file) == 200
    (record,) = httpx.get(f"{url}/v1/topics/scans/partitions/0/records").json()["records"]
    assert base64.b64decode(record["value_base64"]) == b"a file"
    (endless,) = ENDLESS
    execute(page, operations[endless])
    page.wait("1", lambda _: any("/stream?" in asked for asked, _ in page.answered()))
    assert [status for asked, status in page.answered() if "/stream?" in asked] == [200]
    page.open("about:blank")
    print("/docs sends a file as a raw record, and opens a stream")


def check_reference(page: Page, url: str) -> None:
    """`/docs` shows each call, and each can be tried as it is offered. It is dark where the system is."""
    document = httpx.get(f"{url}/openapi.json").json()
    calls = sum(method in METHODS for methods in document["paths"].values() for method in methods)
    page.open(f"{url}/docs")
    page.wait("document.querySelectorAll('.opblock').length", lambda shown: shown == calls)
    statuses = {operation["operationId"]: press(page, operation) for operation in offered(document)}
    expected = {**dict.fromkeys(REFUSED, (401, 404, 409)), **dict.fromkeys(UNFIT, (422,))}
    refused = {name: status for name, status in statuses.items() if status >= 300}
    wrong = {name: status for name, status in refused.items() if status not in expected.get(name, ())}
    assert not wrong, wrong
    elsewhere = [asked for asked in page.requested() if not asked.startswith((f"{url}/", "data:"))]
    assert f"{url}/v1/topics" in [asked.partition("?")[0] for asked in page.requested()]
    assert elsewhere == [], elsewhere
    complaints = [each for each in page.complaints() if not each.startswith(ANSWERED)]
    assert complaints == [], complaints
    page.call("Emulation.setDeviceMetricsOverride", width=PHONE, height=844, deviceScaleFactor=2, mobile=True)
    assert page.run("document.documentElement.scrollWidth") == PHONE, "an open call is wider than a phone"
    page.call("Emulation.clearDeviceMetricsOverride")
    for scheme in ("dark", "light"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.wait(
            "document.documentElement.classList.contains('dark-mode')", lambda dark, s=scheme: dark == (s == "dark")
        )
    page.call("Emulation.setEmulatedMedia", features=[])
    print(f"/docs shows {calls} calls and makes {len(statuses)}; {len(page.requested())} requests, all to the gateway")


def check_tour(page: Page, url: str) -> None:
    """A script of a page of the gateway produces, fetches and acknowledges with the browser's `fetch`."""
    page.open(f"{url}/")
    page.wait("document.readyState", lambda state: state == "complete")
    assert page.run(TOUR) == [["one", "two"], 0, []]
    print("a script produces, fetches and acknowledges")


def check_stream(page: Page, stack: Stack) -> None:
    """The program of docs/streams.md: EventSource acknowledges, outlives its gateway, and ends where it is replaced."""
    url = stack.url
    (program,) = [content for language, content in blocks((DOCS / "streams.md").read_text()) if language == "js"]
    records = f"{url}/v1/topics/parcels/records"
    assert httpx.post(records, json={"records": [{"value": 0}, {"value": 1}]}).status_code == 200
    page.open(f"{url}/")
    page.wait("document.readyState", lambda state: state == "complete")
    page.run(f"(() => {{ {program} {SEEN} window.source = source; }})()")
    page.wait("window.seen.length", lambda seen: seen == 2)
    settled = f"{url}/v1/share-groups/packers/offsets"
    while httpx.get(settled).json()["topics"][0]["partitions"][0]["lag"]:
        page.gather(0.1)
    gateway = stack.service("gateway")
    gateway.kill()
    gateway.start()
    page.wait("window.source.readyState", lambda state: state == 1)
    assert httpx.post(records, json={"records": [{"value": 2}]}).status_code == 200
    assert page.wait("window.seen", lambda seen: len(seen) == 3) == [[0, 1], [1, 1], [2, 1]]
    assert page.run("new Set(window.ids.map((id) => id.split('.')[0])).size") == 1, "it is another stream"
    page.run("void (window.newer = new EventSource(window.source.url))")
    assert page.wait("window.ends", lambda ends: len(ends) == 1) == ["replaced"]
    page.wait("window.source.readyState", lambda state: state == 2)
    assert page.run("window.newer.readyState") == 1
    page.run("window.newer.close()")
    print("EventSource reads a stream, outlives its gateway, and ends where it is replaced")


def check_foreign_stream(page: Page, url: str) -> None:
    """A page of another site gets no stream, and makes the browser acquire nothing: not by a picture either."""
    assert httpx.post(f"{url}/v1/topics/secrets/records", json={"records": [{"value": 0}]}).status_code == 200
    stream = f"{url}/v1/share-groups/spies/stream?topic=secrets&member_id=spy"
    with stranger("<p id='whole'></p>") as site:
        page.open(site.url)
        page.wait("document.querySelector('#whole') !== null")
        page.run(
            f"void (window.source = new EventSource({stream!r}), window.picture = new Image(), picture.src = {stream!r})"
        )
        page.wait("window.source.readyState", lambda state: state == 2)
        page.wait("window.picture.complete")
    fetch = {"topics": ["secrets"], "member_id": "w-1", "max_wait_ms": 0}
    (batch,) = httpx.post(f"{url}/v1/share-groups/spies/fetch", json=fetch).json()["batches"]
    assert batch["delivery_count"] == 1
    print("a page of another site opens no stream")


FORGED = {
    "produceRawRecord": ("POST", "topics/forged/records/raw", "{ body: 'forged' }"),
    "fetchRecords": ("POST", "share-groups/forgers/fetch", """{ body: '{"topics":["kept"]}' }"""),
    "produceRecords": (
        "POST",
        "topics/forged/records",
        "{ body: '{}', headers: { 'Content-Type': 'application/json' } }",
    ),
    "deleteTopic": ("DELETE", "topics/kept", "{}"),
}
"""Calls that pages of other sites try, by their operation: the first two need no preflight."""
FORM = """
<form method="post" enctype="text/plain" action="{url}/v1/topics/forged/records/raw"><input name="a" value="b"></form>
<a href="{url}/v1/topics/kept">a link</a><p id="whole"></p>"""
SANDBOX = """
<iframe sandbox="allow-scripts" srcdoc="<script>
fetch('{url}/v1/topics/forged/records/raw', {{ method: 'POST', mode: 'no-cors', body: 'x' }})
  .finally(() => parent.postMessage('tried', '*'));
</script>"></iframe><script>addEventListener('message', ({{ data }}) => {{ window.said = data; }});</script>"""
REBOUND = "rebound.test"
"""A name of a site that leads to this machine, as after DNS rebinding."""


def refusals(url: str) -> dict[str, int]:
    """How many of these calls were refused with 403."""
    found = re.findall(
        r'^sharequeue_http_request_seconds_count\{operation="(\w+)",status="403"\} (\d+)',
        httpx.get(f"{url}/metrics").text,
        re.MULTILINE,
    )
    return {operation: int(count) for operation, count in found if operation in FORGED}


def check_forgeries(page: Page, url: str) -> None:
    """A page of another site makes no call that changes or acquires something; its links work."""
    assert httpx.post(f"{url}/v1/topics/kept/records", json={"records": [{"value": 0}]}).status_code == 200
    assert refusals(url) == {}
    with stranger(FORM.format(url=url)) as site:
        page.open(site.url)
        page.wait("document.querySelector('#whole') !== null")
        for method, path, more in FORGED.values():
            mode = "cors" if "headers" in more or method == "DELETE" else "no-cors"
            page.run(
                f"fetch('{url}/v1/{path}', {{ method: '{method}', mode: '{mode}', ...{more} }}).catch(() => undefined)"
            )
        without_preflight = {"produceRawRecord": 1, "fetchRecords": 1}
        assert refusals(url) == without_preflight, refusals(url)
        page.run("document.querySelector('form').submit()")
        page.wait("document.body?.innerText", lambda text: "ORIGIN_NOT_ALLOWED" in (text or ""))
        assert refusals(url) == {**without_preflight, "produceRawRecord": 2}
        page.open(site.url)
        page.wait("document.querySelector('a') !== null")
        page.run("document.querySelector('a').click()")
        page.wait("document.body?.innerText", lambda text: '"kept"' in (text or ""))
        assert (f"{url}/v1/topics/kept", 200) in page.answered()
    with stranger(SANDBOX.format(url=url)) as site:
        page.open(site.url)
        page.wait("window.said")
    assert refusals(url) == {**without_preflight, "produceRawRecord": 3}
    unchanged(url)
    print("a page of another site changes and acquires nothing with fetch, a form or a sandboxed frame; its links work")


def check_rebound_name(page: Page, url: str) -> None:
    """For the browser the page and the gateway are one site: it asks nobody, and shows the page each answer."""
    there = url.replace("127.0.0.1", REBOUND)
    page.open(f"{there}/v1/topics")
    page.wait("document.body?.innerText", lambda text: "HOST_NOT_ALLOWED" in (text or ""))
    assert (f"{there}/v1/topics", 421) in page.answered()
    assert page.run("location.origin") == there
    for method, path, more in (("GET", "topics/kept", "{}"), *FORGED.values()):
        status = page.run(f"fetch('/v1/{path}', {{ method: '{method}', ...{more} }}).then((it) => it.status)")
        assert status == 421, path
    unchanged(url)
    print("a page whose name leads to the gateway reads and changes nothing")


def unchanged(url: str) -> None:
    """The topic is there, no other was made, and nobody acquired its record."""
    topics = [topic["name"] for topic in httpx.get(f"{url}/v1/topics").json()["topics"]]
    assert "kept" in topics
    assert "forged" not in topics
    assert httpx.get(f"{url}/v1/share-groups/forgers/offsets").status_code == 404, "the group was made"


def check_strangers(page: Page, url: str) -> None:
    """No frame, and no other document."""
    with stranger(f'<iframe src="{url}/docs"></iframe><p id="whole"></p>') as site:
        page.open(site.url)
        page.wait("document.querySelector('#whole') !== null")
        page.wait("document.readyState", lambda state: state == "complete")
        page.gather(1.0)
        assert any("frame-ancestors" in complaint for complaint in page.complaints()), page.complaints()
        before = len(site.asked)
        for parameter in ("url", "configUrl", "urls.primaryName"):
            page.open(f"{url}/docs?{parameter}={site.url}/other.json")
            page.wait("document.querySelector('.title')?.innerText", lambda title: "sharequeue" in (title or ""))
            page.gather(0.5)
        assert site.asked[before:] == [], site.asked
    print("a page of another site shows no /docs in a frame, and no address makes /docs load its document")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="sharequeue-browser-") as home:
        folder = Path(home)
        rebinding = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1"
        with temporary_stack(folder / "stack") as stack, browser(chromium(), folder / "profile", rebinding) as page:
            check_tour(page, stack.url)
            if "--smoke" in sys.argv:
                print("1 passed, 0 failed")
                return 0
            check_file_and_stream(page, stack.url, folder / "body")
            check_reference(page, stack.url)
            check_strangers(page, stack.url)
            check_foreign_stream(page, stack.url)
            check_forgeries(page, stack.url)
            check_rebound_name(page, stack.url)
            check_stream(page, stack)
    far.run(chromium())
    ui.run(chromium(), Path("dist/browser/pictures"))
    print(f"{9 + ui.CHECKS} passed, 0 failed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
