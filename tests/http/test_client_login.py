"""What clients show of themselves: tokens, further headers, trust in an authority; and where a token never appears."""

import asyncio
import logging
import os
import ssl
import subprocess
from pathlib import Path

import psutil
import pytest
import trustme

from sharequeue.client import (
    ApiError,
    LoginWanted,
    Producer,
    RecordStream,
    ShareConsumer,
    Unreachable,
    sync,
)
from sharequeue.client.following import FollowingClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue.protocol.messages.topics import ListTopicsQuery
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.login import Login, token_of_file
from tests.http.calls import Gateway
from tests.http.cli.conftest import SHAREQUEUE
from tests.http.client_calls import in_event_loop
from tests.http.door import door

TOKEN = "sq_planted_a0b1c2d3"
NEXT = "sq_planted_next"
RIGHT = ("authorization", f"Bearer {TOKEN}")
PASSWORD = "s3cret-pass"


class Authority:
    """A certificate authority of a test. `ca`: its file."""

    def __init__(self, folder: Path, host: str = "localhost") -> None:
        made = trustme.CA()
        self.ca = str(folder / "ca.pem")
        made.cert_pem.write_to_path(self.ca)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.issue_cert(host).configure_cert(self.server)


@in_event_loop
async def test_each_client_shows_its_token(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    async with door(shared_stack.url, RIGHT) as gate:
        async with Producer(gate.url, token=TOKEN) as producer:
            await producer.send(name, 1)
            async with producer.transaction() as transaction:
                await transaction.send(name, 2)
        async with ShareConsumer(gate.url, name, token=TOKEN) as consumer:
            consumer.subscribe([name])
            assert [record.value for record in await consumer.poll()] == [1, 2]
        async with RecordStream(gate.url, f"{name}-2", [name], token=TOKEN) as stream:
            await stream.acknowledge(await anext(stream))
        assert gate.refusals == 0


@in_event_loop
async def test_a_login_that_a_proxy_wants_is_a_named_error(shared_stack: Stack, name: str) -> None:
    async with door(shared_stack.url, RIGHT) as gate:
        for token in (None, "another"):
            with pytest.raises(LoginWanted, match="a proxy before it wants a login") as raised:
                async with Producer(gate.url, token=token) as producer:
                    await producer.send(name, 1)
            assert (raised.value.code, raised.value.status, raised.value.definite) == ("LOGIN_WANTED", 401, False)
            with pytest.raises(LoginWanted):
                async with RecordStream(gate.url, name, [name], token=token) as stream:
                    await anext(stream)
        gate.own = True
        with pytest.raises(ApiError, match="no key that holds") as refused:
            async with ShareConsumer(gate.url, name, [name]) as consumer:
                await consumer.poll()
        assert refused.value.code == "SASL_AUTHENTICATION_FAILED"


@in_event_loop
async def test_a_proxy_gets_its_headers(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    async with door(shared_stack.url, ("x-team", "orders")) as gate:
        async with Producer(gate.url, token=TOKEN, headers={"X-Team": "orders"}) as producer:
            await producer.send(name, 1)
        async with RecordStream(gate.url, name, [name], headers={"X-Team": "orders"}) as stream:
            assert (await anext(stream)).value == 1
        assert gate.heads[0]["authorization"] == f"Bearer {TOKEN}"
    basic = Login(headers={"Authorization": "Basic Zm9v"})
    assert basic.headers() == {"Authorization": "Basic Zm9v"}


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"host": PASSWORD}, "'host' is set by the client itself"),
        ({"Idempotency-Key": PASSWORD}, "'Idempotency-Key' is set by the client itself"),
        ({"AUTHORIZATION": PASSWORD}, "'AUTHORIZATION' is set by the client itself"),
        ({"X-Team": f"{PASSWORD}\r\nHost: b"}, "'X-Team' cannot be sent"),
        ({"X Team": PASSWORD}, "'X Team' cannot be sent"),
        ({"X-Team": f"{PASSWORD}é"}, "'X-Team' cannot be sent"),
    ],
)
def test_a_header_of_the_client_itself_is_refused(headers: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        Login(TOKEN, headers)
    assert PASSWORD not in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("token", ["", " ", f"{PASSWORD}\nb", f"{PASSWORD} ", f"{PASSWORD}é"])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="a token must be one line of printable ASCII") as raised:
        Producer("http://127.0.0.1:9", token=token)
    assert PASSWORD not in str(raised.value)


# Rotation


@in_event_loop
async def test_a_function_gives_the_token_of_each_request(shared_stack: Stack, gateway: Gateway, name: str) -> None:
    gateway.create_topic(name)
    tokens = [TOKEN]
    async with (
        door(shared_stack.url, RIGHT, own=True) as gate,
        Producer(gate.url, token=lambda: tokens[-1]) as producer,
    ):
        await producer.send(name, 1)
        gate.wanted = ("authorization", f"Bearer {NEXT}")
        gate.on_refusal = lambda: tokens.append(NEXT)  # it changes while the request is under way
        await producer.send(name, 2)
        assert gate.refusals == 1
        gate.wanted, gate.on_refusal = RIGHT, lambda: None
        with pytest.raises(ApiError, match="no key that holds"):
            await producer.send(name, 3)
        assert gate.refusals == 2, "the same token is not tried again"
    assert gateway.log_ends(name) == [2]


@in_event_loop
async def test_a_token_file_is_read_again(shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path) -> None:
    gateway.create_topic(name)
    file = tmp_path / "token"
    async with door(shared_stack.url, RIGHT) as gate, Producer(gate.url, token=token_of_file(str(file))) as producer:
        pending = await producer.send_soon(name, 1)  # without the file it waits, as if the gateway was away
        await asyncio.sleep(0)
        file.write_text(f"{TOKEN}\n")
        await pending
        gate.wanted = ("authorization", f"Bearer {NEXT}")
        file.write_text(f"{NEXT}\n")
        await producer.send(name, 2)
        assert gate.refusals == 0


@in_event_loop
async def test_a_missing_token_is_no_request(shared_stack: Stack, name: str, tmp_path: Path) -> None:
    def fails() -> str:
        raise RuntimeError(PASSWORD)

    async with door(shared_stack.url, RIGHT) as gate:
        for token, words in (
            (token_of_file(str(tmp_path / "none")), "there is no token: .*No such file"),
            (fails, "there is no token: the function raised RuntimeError"),
            (lambda: f"{PASSWORD}\n", "a token must be one line"),
        ):
            with pytest.raises(Unreachable, match=words) as raised:
                async with Producer(gate.url, token=token, deadline_ms=200) as producer:
                    await producer.send(name, 1)
            assert raised.value.definite
            assert PASSWORD not in str(raised.value)
        assert gate.heads == []


# TLS


@in_event_loop
async def test_an_authority_of_a_file_is_trusted(
    shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    gateway.create_topic(name)
    authority = Authority(tmp_path)
    async with door(shared_stack.url, RIGHT, tls=authority.server) as gate:
        async with Producer(gate.url, token=TOKEN, ca=authority.ca) as producer:
            await producer.send(name, 1)
        async with RecordStream(gate.url, name, [name], token=TOKEN, ca=authority.ca) as stream:
            assert (await anext(stream)).value == 1


@pytest.mark.parametrize("wrong", ["system", "another authority", "another host"])
@in_event_loop
async def test_a_server_that_is_not_trusted_gets_no_token(shared_stack: Stack, tmp_path: Path, wrong: str) -> None:
    (tmp_path / "other").mkdir()
    authority = Authority(tmp_path, "elsewhere.example" if wrong == "another host" else "localhost")
    other = Authority(tmp_path / "other")
    ca = {"system": None, "another authority": other.ca, "another host": authority.ca}[wrong]
    async with door(shared_stack.url, RIGHT, tls=authority.server) as gate:
        with pytest.raises(Unreachable, match=r"CERTIFICATE_VERIFY_FAILED.*authority is given as ca, SHAREQUEUE_CA"):
            async with Producer(gate.url, token=TOKEN, ca=ca, deadline_ms=300) as producer:
                await producer.send("t", 1)
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            async with RecordStream(gate.url, "g", ["t"], token=TOKEN, ca=ca, request_timeout_ms=100) as stream:
                await anext(stream)
        assert gate.heads == []


@in_event_loop
async def test_a_server_without_tls_is_called_by_http(shared_stack: Stack) -> None:
    url = shared_stack.url.replace("http://", "https://")
    with pytest.raises(Unreachable, match=r"it does not speak https: its URL begins with http://"):
        async with Producer(url, deadline_ms=300) as producer:
            await producer.send("t", 1)


def test_a_file_without_authorities_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in ("ca.pem", "none.pem"):
        with pytest.raises(ValueError, match=f"{file} has no certificates of authorities"):
            Producer("https://localhost:9", ca=str(tmp_path / file))


# Leaders


def _led_by(url: str, partition: int = 0) -> tuple[list[tuple[str, int]], list[PartitionLeader]]:
    """The places of an answer with one record, and the leaders that it names."""
    return [("t", partition)], [PartitionLeader(topic="t", partition=partition, node_id="n", url=url)]


@in_event_loop
async def test_a_leader_gets_the_token_and_not_the_headers_of_the_proxy(shared_stack: Stack) -> None:
    login = Login(TOKEN, {"X-Team": "orders"})
    async with door(shared_stack.url, RIGHT) as first, door(shared_stack.url, RIGHT) as leader:
        client = FollowingClient(first.url, login=login)
        client.learn(*_led_by(leader.url))
        await client.call(apis.LIST_TOPICS, ListTopicsQuery())
        await client.close()
        assert first.heads == []
        assert [(head["authorization"], head.get("x-team")) for head in leader.heads] == [(f"Bearer {TOKEN}", None)]


@in_event_loop
async def test_a_leader_that_wants_the_login_of_the_proxy_is_avoided(shared_stack: Stack) -> None:
    async with (
        door(shared_stack.url, ("authorization", "Basic one")) as first,
        door(shared_stack.url, ("authorization", "Basic one")) as leader,
    ):
        client = FollowingClient(first.url, login=Login(headers={"Authorization": "Basic one"}))
        client.learn(*_led_by(leader.url))
        await asyncio.gather(*(client.call(apis.LIST_TOPICS, ListTopicsQuery()) for _ in range(2)))
        await client.call(apis.LIST_TOPICS, ListTopicsQuery())
        client.learn(*_led_by(leader.url))
        await client.close()
        assert (client.base_url, len(first.heads), len(leader.heads)) == (first.url, 3, 2)


@in_event_loop
async def test_no_call_goes_from_https_to_a_leader_of_http(shared_stack: Stack, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        door(shared_stack.url, RIGHT, tls=authority.server) as first,
        door(shared_stack.url, RIGHT) as clear,
        door(shared_stack.url, RIGHT, tls=authority.server) as safe,
    ):
        client = FollowingClient(first.url, login=Login(TOKEN), ca=authority.ca)
        for url in (clear.url, f"https://user:{PASSWORD}@localhost:9", "not a URL"):
            client.forget()
            client.learn(*_led_by(url))
            await client.call(apis.LIST_TOPICS, ListTopicsQuery())
            assert client.base_url == first.url
        client.forget()
        client.learn(*_led_by(safe.url))
        await client.call(apis.LIST_TOPICS, ListTopicsQuery())
        await client.close()
        assert (len(first.heads), len(clear.heads), len(safe.heads)) == (3, 0, 1)


# Where no secret appears


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_password_in_a_url_is_refused_and_not_repeated(scheme: str) -> None:
    for url in (f"{scheme}://user:{PASSWORD}@localhost:8080", f"{scheme}://user:{PASSWORD}/x@localhost"):
        for kind in (Producer, sync.Producer):
            with pytest.raises(ValueError, match="must not hold a user name or a password") as raised:
                kind(url)
            assert PASSWORD not in str(raised.value)


@in_event_loop
async def test_no_secret_is_in_logs_and_texts(
    shared_stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    gateway.create_topic(name)
    async with door(shared_stack.url, RIGHT) as gate:
        objects: list[object] = [Login(TOKEN, {"X-Proxy": PASSWORD}), Client(gate.url, login=Login(TOKEN))]
        async with (
            ShareConsumer(gate.url, name, [name], token=TOKEN, headers={"X-Proxy": PASSWORD}) as consumer,
            RecordStream(gate.url, name, [name], token=TOKEN) as stream,
            Producer(gate.url, token=TOKEN) as producer,
        ):
            objects += [consumer, stream, producer]
            await producer.send(name, 1)
            await consumer.poll()
            gate.wanted = ("authorization", "Bearer other")
            with pytest.raises(LoginWanted) as refused:
                await producer.send(name, 2)
            gate.wanted = RIGHT
    texts = "".join(map(repr, objects)) + repr(refused.value) + str(refused.value) + caplog.text
    assert TOKEN not in texts
    assert PASSWORD not in texts


# The command line


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run([SHAREQUEUE, *arguments], check=False, env=environment, capture_output=True, text=True)


async def _until(reader: asyncio.StreamReader, line: bytes) -> None:
    while (read := await reader.readline()) != line:
        assert read, "the command has ended"


@in_event_loop
async def test_the_commands_show_the_token_of_the_environment(
    shared_stack: Stack, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 1)
    authority = Authority(tmp_path)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    async with door(shared_stack.url, RIGHT, tls=authority.server) as gate:
        for given in ({"SHAREQUEUE_TOKEN": TOKEN}, {"SHAREQUEUE_TOKEN_FILE": str(file)}):
            variables = {"SHAREQUEUE_URL": gate.url, "SHAREQUEUE_CA": authority.ca, **given}
            for command in (
                ("topics", "read", name),
                ("groups", "list"),
                ("consume", name, "-g", name, "--timeout", "0.3"),
                ("produce", name, str(file)),
                ("healthcheck",),
            ):
                done = await asyncio.to_thread(run, *command, **variables)
                assert (done.returncode, TOKEN in done.stderr) == (0, False), (command, done.stdout, done.stderr)
        assert gate.refusals == 0
        consuming = await asyncio.create_subprocess_exec(
            *(SHAREQUEUE, "consume", name, "-g", f"{name}-2", "--follow"),
            env={"PATH": os.environ["PATH"], **variables},
            stdout=asyncio.subprocess.PIPE,
        )
        assert consuming.stdout is not None
        await consuming.stdout.readline()
        assert TOKEN not in " ".join(psutil.Process(consuming.pid).cmdline())
        gate.wanted = (*RIGHT, f"Bearer {NEXT}")
        file.write_text(f"{NEXT}\n")
        gateway.produce(name, "both hold")
        await _until(consuming.stdout, b"both hold\n")
        gate.wanted = ("authorization", f"Bearer {NEXT}")
        gateway.produce(name, "one holds")
        await _until(consuming.stdout, b"one holds\n")
        consuming.terminate()
        await consuming.wait()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"SHAREQUEUE_TOKEN": TOKEN, "SHAREQUEUE_TOKEN_FILE": "f"},
            "set one of SHAREQUEUE_TOKEN and SHAREQUEUE_TOKEN_F",
        ),
        ({"SHAREQUEUE_TOKEN": f"{TOKEN}\n{TOKEN}"}, "SHAREQUEUE_TOKEN: a token must be one line"),
        ({"SHAREQUEUE_TOKEN_FILE": "/no/such"}, "SHAREQUEUE_TOKEN_FILE: /no/such: No such file or directory"),
        ({"SHAREQUEUE_CA": "/no/such"}, "SHAREQUEUE_CA: /no/such has no certificates"),
        ({"SHAREQUEUE_URL": f"http://user:{PASSWORD}@localhost"}, "must not hold a user name or a password"),
    ],
)
def test_wrong_variables_are_wrong_usage(variables: dict[str, str], words: str) -> None:
    for command in (("topics", "list"), ("topics", "list", "--json"), ("healthcheck",)):
        done = run(*command, **{"SHAREQUEUE_URL": "http://127.0.0.1:9", **variables})
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert TOKEN not in done.stderr
        assert PASSWORD not in done.stderr


@in_event_loop
async def test_a_command_without_a_token_says_what_wants_it(shared_stack: Stack) -> None:
    async with door(shared_stack.url, RIGHT) as gate:
        done = await asyncio.to_thread(run, "topics", "list", SHAREQUEUE_URL=gate.url)
        assert done.returncode == 1
        assert done.stderr.startswith(f"sharequeue: LOGIN_WANTED: {gate.url} answered listTopics with 401 (text/html)")
