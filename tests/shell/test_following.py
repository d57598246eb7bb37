"""A consumer follows the gateway that leads most of its partitions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from sharequeue.client.following import FollowingClient
from sharequeue.client.sending import PRODUCE
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue.stack.process import free_port
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import AuthenticationFailed, RequestTimedOut, Unreachable
from tests.http.client_calls import in_event_loop, until

HOME, A, B = "http://home:1", "http://a:1", "http://b:1"


def answer(led: dict[int, str | None]) -> tuple[list[tuple[str, int]], list[PartitionLeader]]:
    """The partitions of an answer, and the leaders that it names; None: the gateway that was asked leads it."""
    leaders = [
        PartitionLeader(topic="t", partition=partition, node_id=url, url=url)
        for partition, url in led.items()
        if url is not None
    ]
    return [("t", partition) for partition in led], leaders


@pytest.mark.parametrize(
    ("answers", "follows"),
    [
        ([{0: None}], HOME),
        ([{0: A}], A),
        ([{0: A}, {0: None}], A),
        ([{0: A}, {0: HOME}], HOME),
        ([{0: A}, {0: B}], B),
        ([{0: None, 1: A}], HOME),
        ([{0: None, 1: A, 2: A}], A),
        ([{0: None}, {1: A}, {2: A}], A),
        ([{0: A}, {1: B}, {2: HOME}, {1: B}], A),
        ([{}], HOME),
    ],
)
def test_a_client_follows_the_leader_of_most_partitions(answers: Sequence[dict[int, str | None]], follows: str) -> None:
    async def run() -> str:
        client = FollowingClient(HOME, login=Login())
        for led in answers:
            client.learn(*answer(led))
        url = client.base_url
        await client.close()
        return url

    assert asyncio.run(run()) == follows


def test_a_client_that_fetches_other_topics_forgets_the_old_leaders() -> None:
    async def run() -> None:
        client = FollowingClient(HOME, login=Login())
        client.learn(*answer({0: A, 1: A}))
        client.forget()
        client.learn(*answer({2: B}))
        assert client.base_url == B
        await client.close()

    asyncio.run(run())


HANG_S = 60
DONE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LATER = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 80000\r\nContent-Length: 0\r\n\r\n"


class Answering:
    """A gateway that answers each request with these bytes. `heads`: the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(2)
                writer.write(self.answers[min(len(self.heads), len(self.answers)) - 1])
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Answering"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()


async def produce(client: FollowingClient) -> None:
    async with asyncio.timeout(HANG_S):
        await client.relay(PRODUCE, b"{}", path={"topic": "t"})


@in_event_loop
async def test_a_call_waits_for_no_leader_that_asks_to_be_left_alone_for_a_day() -> None:
    async with Answering(DONE).listening() as home, Answering(LATER).listening() as leader:
        client = FollowingClient(home.url, login=Login())
        client.learn(*answer({0: leader.url}))
        await produce(client)
        await client.close()
        assert (client.base_url, len(leader.heads), len(home.heads)) == (home.url, 1, 1)


@in_event_loop
async def test_a_call_ends_at_its_deadline_if_none_of_several_gateways_answers() -> None:
    client = FollowingClient([f"http://127.0.0.1:{free_port()}" for _ in range(2)], login=Login(), deadline_s=0.3)
    with pytest.raises(Unreachable) as failed:
        await produce(client)
    assert failed.value.definite
    await client.close()


@in_event_loop
async def test_a_leader_that_refuses_a_token_which_is_replaced_by_now_is_called_again() -> None:
    refusal = encode({"code": AuthenticationFailed.error.code, "detail": "an old token", "definite": True})
    head = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n"
    tokens = iter(("old", "new", "new", "new"))
    async with (
        Answering(head % len(refusal) + refusal, DONE).listening() as leader,
        Answering(DONE).listening() as home,
    ):
        client = FollowingClient(home.url, login=Login(lambda: next(tokens)))
        client.learn(*answer({0: leader.url}))
        await produce(client)
        await client.close()
        assert (client.base_url, len(leader.heads), len(home.heads)) == (leader.url, 2, 0)


@in_event_loop
async def test_an_error_names_the_gateway_that_was_called_though_another_one_is_followed_by_now() -> None:
    async with Answering(b"").listening() as silent:
        client = FollowingClient(HOME, login=Login())
        client.learn(*answer({0: silent.url}))
        calling = asyncio.create_task(client.relay(apis.PRODUCE_RECORDS, b"{}", path={"topic": "t"}))
        await until(lambda: silent.heads)
        client.learn(*answer({1: A, 2: A}))
        with pytest.raises(RequestTimedOut, match=f"the connection to {silent.url} was lost"):
            await calling
        await client.close()
