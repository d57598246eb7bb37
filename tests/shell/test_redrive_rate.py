"""`sharequeue groups redrive` calls page by page, at the rate that it is given, and repeats what a gateway refuses."""

import asyncio
import json

import pytest
from click.testing import CliRunner
from msgspec import UNSET

from sharequeue.cli import main
from sharequeue.cli.groups.redrive import AT_ONCE, pages
from sharequeue.protocol.messages.dead_letters import RedriveResult
from tests.sharequeue_http.test_client import Server, run


class Letters:
    """Dead letters of which some are skipped. `asked`: the `max_records` of each call; `pauses`: seconds, in order."""

    def __init__(self, count: int, skipped: int = 0) -> None:
        self.left = count
        self.skipped = skipped
        self.asked: list[int] = []
        self.pauses: list[float] = []

    async def call(self, most: int, page_token: str | None) -> RedriveResult:
        assert page_token == (str(self.left) if self.asked else None)
        self.asked.append(most)
        taken = min(most, self.left)
        skipped = min(taken, self.skipped)
        self.left -= taken
        self.skipped -= skipped
        following = str(self.left) if self.left else UNSET
        return RedriveResult(matched=taken, redriven=taken - skipped, skipped_count=skipped, next_page_token=following)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def redrive(self, most: int | None, rate: int) -> tuple[int, int]:
        """Returns: how many are redriven and how many skipped."""

        async def answers() -> list[RedriveResult]:
            return [page async for page in pages(self.call, most, rate, self.sleep)]

        found = asyncio.run(answers())
        return sum(page.redriven for page in found), sum(page.skipped_count for page in found)


def test_a_page_has_one_seconds_worth_and_a_pause_follows() -> None:
    letters = Letters(95)
    assert letters.redrive(None, 10) == (95, 0)
    assert letters.asked == [10] * 10
    assert letters.pauses == [1.0] * 9, "none after the last page"


def test_without_a_rate_nothing_pauses() -> None:
    letters = Letters(2 * AT_ONCE + 1)
    assert letters.redrive(None, 0) == (2 * AT_ONCE + 1, 0)
    assert (letters.asked, letters.pauses) == ([AT_ONCE] * 3, [])


def test_a_high_rate_pauses_in_proportion() -> None:
    letters = Letters(3 * AT_ONCE)
    assert letters.redrive(None, 4 * AT_ONCE) == (3 * AT_ONCE, 0)
    assert (letters.asked, letters.pauses) == ([AT_ONCE] * 3, [0.25] * 2)


def test_skipped_dead_letters_count_for_max_records_and_not_for_the_rate() -> None:
    letters = Letters(100, skipped=15)
    assert letters.redrive(25, 10) == (10, 15)
    assert letters.asked == [10, 10, 5]
    assert letters.pauses == [0.0, 0.5]


def answered(status: str, **fields: object) -> bytes:
    body = json.dumps(fields).encode()
    return b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize("refusal", ["429 Too Many Requests", "503 Service Unavailable"])
def test_a_page_that_is_refused_for_a_moment_is_asked_for_again(refusal: str) -> None:
    answers = [
        answered("200 OK"),
        answered("200 OK", matched=2, redriven=2, next_page_token="behind"),
        answered(refusal),
        answered("200 OK", matched=1, redriven=1),
    ]

    async def work(server: Server, url: str) -> None:
        server.answer = lambda number: answers[number - 1]
        words = ("groups", "redrive", "g", "--rate", "1000", "--json", "--url", url)
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert (done.exit_code, json.loads(done.stdout)) == (0, {"redriven": 3}), done.output
        asked = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests[1:]]
        assert [(page.get("page_token"), page["max_records"]) for page in asked] == [
            (None, 1000),
            ("behind", 1000),
            ("behind", 1000),
        ]

    run(work)


@pytest.mark.parametrize("rate", ["-1", "fast", "0.5"])
def test_a_wrong_rate_is_refused(rate: str) -> None:
    done = CliRunner().invoke(main, ("groups", "redrive", "g", "--rate", rate))
    assert done.exit_code == 2
    assert "Invalid value for '--rate': " in done.stderr
