"""A flood of wrong keys: a key that holds is served beside it, and the refusals that wait take a bounded memory."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.protocol.access.keys import make_key, parse_key
from sharequeue.stack.stack import Stack
from tests.http.access import SETTINGS
from tests.http.calls import Gateway
from tests.sharequeue_http.raw import Raw, head

FLOODERS, TURNS, AT_ONCE = 50, 6, 10
HEAD = 16 << 10
READ = 256 << 10
"""A connection reads at most so much at a time."""
AROUND = 16 << 20
"""How much a process may grow for other reasons."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return SETTINGS


def test_a_key_that_holds_is_served_beside_a_flood_of_wrong_ones(stack: Stack, admin: Gateway, name: str) -> None:
    known = parse_key(admin.http.headers["authorization"].partition(" ")[2])
    assert known is not None
    wrong = make_key(bytes.fromhex(known.key_id), bytes(32)).text
    request = head("GET /v1/topics", f"Authorization: Bearer {wrong}", f"Padding: {'p' * HEAD}")

    def flood() -> set[int]:
        statuses = set()
        for _ in range(TURNS):
            with Raw(int(stack.url.rpartition(":")[2]), timeout_s=60) as line, suppress(ConnectionError):
                line.send(request * AT_ONCE)
                for _ in range(AT_ONCE):  # behind a refusal that waits, much more ends the connection with its answer
                    statuses.add(line.answer().status)
        return statuses

    admin.create_topic(name)
    pid = stack.service("gateway").pid
    reset_peak(pid)
    before, produced = resident_bytes(pid), 0
    with ThreadPoolExecutor(FLOODERS) as flooders:
        floods = [flooders.submit(flood) for _ in range(FLOODERS)]
        while not all(each.done() for each in floods):
            admin.produce(name, produced)
            produced += 1
    assert [each.result() for each in floods] == [{401}] * FLOODERS
    assert admin.describe_topic(name)["partitions"][0]["log_end_offset"] == produced
    assert peak_resident_bytes(pid) - before < FLOODERS * (AT_ONCE * HEAD + READ) + AROUND
