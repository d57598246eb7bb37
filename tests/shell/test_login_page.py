"""A proxy's login page, by 302, as a 200 with HTML or with 401, is no success for any kind of caller: each names what
came from where, and does not claim that nothing happened."""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest
from click.testing import CliRunner
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import GatewayOptions

from sharequeue.cli import main
from sharequeue.client import Producer, RecordStream, ShareConsumer, UnexpectedAnswer
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue_http.calling.caller import Client, decoded

PAGE: Final = b"<html>login</html>"
LONG_PAGE: Final = b"<html>" + b"x" * 5000
WORDS: Final = {
    302: "with 302 to /login; a proxy wants a login there",
    200: "with 200 (text/html; charset=utf-8): ",
    401: "with 401 (text/html; charset=utf-8): ",
}
CODES: Final = {302: "UNEXPECTED_ANSWER", 200: "UNEXPECTED_ANSWER", 401: "LOGIN_WANTED"}
COMMANDS: Final = (
    ("topics", "delete", "payments", "--yes"),
    ("topics", "describe", "payments"),
    ("topics", "read", "payments"),
    ("groups", "delete", "billing"),
    ("groups", "delete-offsets", "billing", "--topic", "payments"),
    ("groups", "list"),
    ("consume", "payments", "--group", "billing"),
    ("produce", "payments", __file__),
    ("healthcheck",),
)


@pytest.fixture(scope="module", params=[302, 200, 401])
def status(request: pytest.FixtureRequest) -> int:
    given: int = request.param
    return given


@contextlib.contextmanager
def answering(status: int, media_type: str = "text/html; charset=utf-8", page: bytes = PAGE) -> Iterator[str]:
    class Login(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            self.send_response(200 if self.path.startswith("/login") else status)
            self.send_header("Location", "/login")
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        do_GET = do_POST = do_PATCH = do_DELETE = do_any

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Login)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def url(status: int) -> Iterator[str]:
    with answering(status) as address:
        yield address


async def _produce(url: str) -> None:
    async with Producer(url) as producer:
        await producer.send("t", 1)


async def _consume(url: str) -> None:
    async with ShareConsumer(url, "g", ["t"]) as consumer:
        await consumer.poll()


async def _join(url: str) -> None:
    async with ShareConsumer(url, "g") as consumer:
        consumer.subscribe(["t"])
        assert await consumer.poll(1000), "it does not say why it has no records"


async def _stream(url: str) -> None:
    async with RecordStream(url, "g", ["t"]) as stream:
        await anext(stream)


async def _ask_a_gateway(url: str) -> None:
    await Client(url).call(apis.DELETE_TOPIC, path={"topic": "t"})


async def _ask_a_coordinator(url: str) -> None:
    await CoordinatorClient(url, "group", cluster_token="x").call(
        apis.METADATA_CHANGES, apis.METADATA_CHANGES.request(since=0)
    )


@pytest.mark.parametrize("call", [_produce, _consume, _join, _stream, _ask_a_gateway, _ask_a_coordinator])
def test_a_client_or_a_service_gets_a_named_error(call: Callable[[str], Any], url: str, status: int) -> None:
    with pytest.raises(UnexpectedAnswer) as raised:
        asyncio.run(call(url))
    assert raised.value.detail.startswith(f"{url} answered ")
    assert WORDS[status] in raised.value.detail
    assert (raised.value.code, raised.value.retriable, raised.value.definite) == (CODES[status], False, False)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_so_and_fails(command: tuple[str, ...], url: str) -> None:
    where = () if command == ("healthcheck",) else ("--url", url)
    done = CliRunner(env={"SHAREQUEUE_URL": url}).invoke(main, (*command, *where))
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert url in done.stdout + done.stderr
    assert not re.search("deleted|successful|Traceback|<html>(?!login</html>')", done.stdout + done.stderr)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize(
    ("status", "page"),
    [(401, PAGE), (404, PAGE), (502, LONG_PAGE), (503, b"{}"), (200, b"{}"), (200, b'{"status":"UP"}'), (503, b"[]")],
)
def test_a_health_check_accepts_only_the_readiness_of_a_service(
    status: int, page: bytes, options: tuple[str, ...]
) -> None:
    media_type = "text/html" if page.startswith(b"<") else "application/json"
    with answering(status, media_type, page) as address:
        done = CliRunner().invoke(main, ("healthcheck", address, *options))
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{address}/readyz answered with {status} ({media_type}): {page[:100].decode()!r}" in (
        json.loads(done.stderr)["detail"] if options else done.stderr
    )
    assert not options or json.loads(done.stderr)["code"] == "UNEXPECTED_ANSWER"


def test_the_pipeline_says_so_in_one_line(url: str, status: int) -> None:
    with GatewayClient(GatewayOptions(url=url)) as gateway, pytest.raises(PipelineError) as raised:
        gateway.describe("t")
    assert str(raised.value).startswith(f"{CODES[status]}: {url} answered describeTopic with ")


def test_an_answer_of_another_form_is_named() -> None:
    with pytest.raises(UnexpectedAnswer, match="http://a:1 answered produceRecords with JSON of another form"):
        decoded(apis.PRODUCE_RECORDS, b'{"records":17}', "http://a:1")
