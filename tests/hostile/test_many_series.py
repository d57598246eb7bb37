"""The cost of a scrape of /metrics: a few lines for each group with records in flight, none for an idle group."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.service.series import MOST_SERIES, Counts
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until

GROUPS = 100
BYTES_OF_A_GROUP = 450
"""Above 5,000 groups only those with the highest numbers have series, so 10,000 groups are less than 3 MB."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    pairs = GROUPS // 5  # as 2,000 of 10,000
    return {
        "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "1000",
        "SHAREQUEUE_GATEWAY_MAX_METRIC_PAIRS": str(pairs),
        "SHAREQUEUE_GATEWAY_BACKLOG_INTERVAL_MS": "500",
        "SHAREQUEUE_GATEWAY_ACTIVITY_FLUSH_MS": "100",
    }


@pytest.mark.soak
def test_a_scrape_follows_the_groups_that_have_something_in_flight(
    client: httpx.Client, stack: Stack, name: str
) -> None:
    gateway = Gateway(client)
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    groups = [f"{name}-{number}" for number in range(GROUPS)]

    def scrape() -> str:
        return client.get("/metrics").text

    def in_flight() -> list[str]:
        families = ("sharequeue_in_flight_message_count", "sharequeue_in_flight_batch_count")
        return [line for line in scrape().splitlines() if f'group="{name}-' in line and line.startswith(families)]

    before = len(scrape())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda group: gateway.acquire(group, name), groups))
    assert len(in_flight()) == 2 * GROUPS
    wait_until(lambda: "sharequeue_metric_pairs_dropped 81.0" in scrape())
    wait_until(lambda: 'sharequeue_group_backlog_records{group="other"' in scrape())
    assert len(scrape()) - before < GROUPS * BYTES_OF_A_GROUP
    for group in groups:
        assert gateway.settle(group, name, 0, 0, "accept") == "applied"
    assert in_flight() == []


def test_an_idle_group_loses_its_counters(client: httpx.Client, name: str) -> None:
    gateway = Gateway(client)
    gateway.configure(name, errors_deadletterqueue_topic_name=f"{name}-dead")
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "reject") == "applied"
    written = f'sharequeue_dead_letter_records_total{{group="{name}"}}'
    wait_until(lambda: written in gateway.metrics())
    wait_until(lambda: not [s for s in gateway.metrics() if s.startswith("sharequeue_dead") and f'"{name}"' in s])


def test_a_family_writes_its_highest_numbers_alone() -> None:
    counts = Counts[str]("things", "Things.", ["name"])
    for number in range(MOST_SERIES + 5):
        counts[str(number)].inc(number)
    lines = list(counts.lines())
    assert len(lines) == 1 + MOST_SERIES
    assert f'things_total{{name="{MOST_SERIES + 4}"}} {MOST_SERIES + 4}.0\n' in lines
    assert not any('name="0"' in line for line in lines)


def test_labels_are_escaped() -> None:
    counts = Counts[tuple[str, ...]]("things", "Things.", ["group", "topic"])
    counts['a"b\\c\nd', "t"].inc()
    assert list(counts.lines())[1] == 'things_total{group="a\\"b\\\\c\\nd",topic="t"} 1.0\n'
