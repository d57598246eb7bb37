"""The programs of docs/client.md do what the page says: pasted as they stand, one after the other, each a process.

Those that read for ever end by SIGINT, as by a reader's Ctrl-C, when the group has settled what it shall.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until
from tests.system.test_readme import PRINTED_URL, blocks

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
ENDED_BY_SIGINT = -signal.SIGINT


def programs() -> list[str]:
    """The page's blocks, each of which is a program."""
    found = blocks(PAGE.read_text())
    assert {language for language, _ in found} == {"python"}
    return [block for _, block in found]


class Reader:
    """Sees over HTTP what the programs did."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, path: str, **parameters: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(path, params=parameters).json()
        return found

    def committed(self, topic: str) -> list[tuple[Any, ...]]:
        """Key, value and headers of each record in partition 0 that readers of committed records get."""
        records: list[dict[str, Any]] = []
        offset, end = 0, 1
        while offset < end:  # a read may end before the last commit: reading on gets the rest
            path = f"/topics/{topic}/partitions/0/records"
            page = self.get(path, isolation_level="read_committed", offset=str(offset))
            assert page["next_offset"] > offset, page
            records += page["records"]
            offset, end = page["next_offset"], page["log_end_offset"]
        return [
            (record["key"], record.get("value", record.get("value_base64")), record.get("headers"))
            for record in records
        ]

    def settled(self) -> bool:
        """Whether the group has an outcome for each record."""
        topics = self.get("/share-groups/billing/offsets").get("topics", ())
        return [each["lag"] for topic in topics for each in topic["partitions"]] == [0]


def start(stack: Stack, program: str) -> subprocess.Popen[str]:
    assert PRINTED_URL in program
    command = [sys.executable, "-c", program.replace(PRINTED_URL, stack.url)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(stack: Stack, program: str) -> str:
    """What a program prints that ends by itself."""
    printed, complaints = start(stack, program).communicate(timeout=300)
    assert complaints == ""
    return printed


def read_until_settled(stack: Stack, program: str, reader: Reader) -> str:
    """What a program prints until the group has settled all there is; then Ctrl-C ends it."""
    process = start(stack, program)
    try:
        wait_until(lambda: process.poll() is not None or reader.settled())
        process.send_signal(signal.SIGINT)
        printed, complaints = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == ENDED_BY_SIGINT, complaints
    assert reader.settled()
    assert [each["batches"] for each in reader.get("/share-groups/billing/in-flight")["partitions"]] == [[]]
    return printed


def test_the_programs_produce_commit_and_settle_as_the_page_says(stack: Stack) -> None:
    producing, committing, _, consuming, streaming, managing = programs()
    with httpx.Client(base_url=f"{stack.url}/v1", timeout=40) as http:
        reader = Reader(http)
        assert output(stack, producing) == ""
        sent = [
            ("cust-9", {"id": 1}, {"trace": "x"}),
            (None, "Ynl0ZXM=", None),
            (None, {"id": 2}, None),
            ("cust-9", {"id": 3}, None),
            ("order-4", {"id": 4}, None),
            (None, {"id": 4}, None),
        ]
        assert reader.get("/topics/orders/scheduled")["scheduled_count"] == 1
        assert reader.committed("orders") == sent
        assert output(stack, committing) == "committed\n"
        assert reader.committed("orders") == [*sent, (None, {"id": 1}, None)]
        assert reader.committed("payments") == [(None, {"order": 1}, None)]
        (ended,) = reader.get("/transactions", state="committed")["ended"]
        assert (ended["partitions"], ended["reason"]) == (2, "client")
        printed = read_until_settled(stack, consuming, reader)
        assert printed == "{'id': 1}\nb'bytes'\n{'id': 2}\n{'id': 3}\n{'id': 4}\n{'id': 4}\n{'id': 1}\n"
        more = {"records": [{"value": "one"}, {"value": "two"}]}
        assert http.post("/topics/orders/records", json=more).status_code == 200
        assert not reader.settled()
        assert read_until_settled(stack, streaming, reader) == "one\ntwo\n"
        assert output(stack, managing) == "bills 4\norders 1\npayments 1\nfinished\n"
