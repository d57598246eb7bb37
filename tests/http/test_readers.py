"""What the log's readers say of groups that fetch, finish and stop, and what retention spares. Both work every 50 ms here."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.http.database import locked, refused_state_writes, sql

Rows = Callable[[], dict[int, tuple[int, int]]]


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_FLOOR_INTERVAL_MS": "50", "SHAREQUEUE_GATEWAY_RETENTION_INTERVAL_MS": "50"}


@pytest.fixture
def rows(database: str, name: str) -> Rows:
    """State epoch and floor of the group `name`, by partition."""

    def read() -> dict[int, tuple[int, int]]:
        found = sql(database, "SELECT partition, state_epoch, floor FROM log.readers WHERE group_id = $1", name)
        return {partition: (epoch, floor) for partition, epoch, floor in found}

    return read


def floor(rows: Rows, partition: int = 0) -> int:
    return rows()[partition][1]


def lag(gateway: Gateway, group: str) -> tuple[int, int]:
    """Start offset and lag of the first partition."""
    offsets = good(gateway.http.get(f"/v1/share-groups/{group}/offsets"))["topics"][0]["partitions"][0]
    return offsets["start_offset"], offsets["lag"]


def test_rd_301_a_floor_follows_what_is_finished_up_to_the_end(own_gateway: Gateway, name: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(10))
    own_gateway.fetch(name, name)
    assert floor(rows) == 0
    assert own_gateway.settle(name, name, 4, 9, "accept") == "applied"
    assert own_gateway.settle(name, name, 0, 2, "accept") == "applied"
    wait_until(lambda: floor(rows) == 3)
    assert own_gateway.settle(name, name, 3, 3, "accept") == "applied"
    wait_until(lambda: floor(rows) == 10)


def test_rd_302_a_group_that_begins_at_the_end_has_its_row_there(own_gateway: Gateway, name: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(7))
    own_gateway.configure(name, share_auto_offset_reset="latest")
    own_gateway.fetch(name, name)
    assert floor(rows) == 7


def test_rd_303_a_fetch_waits_for_its_row(
    own_gateway: Gateway, name: str, database: str, rows: Rows, background: ThreadPoolExecutor
) -> None:
    own_gateway.produce(name, *range(3))
    with locked(database, "log.readers") as waits:
        fetching = background.submit(own_gateway.fetch, name, name)
        wait_until(waits)
        assert not fetching.done()
    assert [batch["last_offset"] for batch in fetching.result()["batches"]] == [2]
    assert floor(rows) == 0


def test_rd_304_void_offsets_are_finished_without_another_write(
    own_gateway: Gateway, name: str, database: str, rows: Rows
) -> None:
    """Redriven for another group: nothing comes for this one, and yet it has finished them."""
    other = f"{name}-other"
    own_gateway.produce(name, "a", "b")
    for group in (name, other):
        own_gateway.fetch(group, name)
    assert own_gateway.settle(name, name, 0, 1, "accept") == "applied"
    assert own_gateway.settle(other, name, 0, 1, "reject") == "applied"
    wait_until(
        lambda: good(own_gateway.http.post(f"/v1/share-groups/{other}/dead-letters/redrive", json={}))["redriven"] == 2
    )
    assert own_gateway.fetch(name, name)["batches"] == []
    wait_until(lambda: floor(rows) == 4)
    assert lag(own_gateway, name) == (4, 0)
    assert sql(database, "SELECT floor FROM log.readers WHERE group_id = $1", other) != [(4,)]


def test_rd_305_lag_is_right_after_the_log_start_moved(own_gateway: Gateway, name: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(12))
    own_gateway.fetch(name, name, max_records=1)
    assert own_gateway.settle(name, name, 0, 0, "accept") == "applied"
    good(
        own_gateway.http.post(
            f"/v1/topics/{name}/delete-records", json={"partitions": [{"partition": 0, "before_offset": 12}]}
        )
    )
    assert own_gateway.fetch(name, name)["batches"] == []
    wait_until(lambda: floor(rows) == 12)
    assert lag(own_gateway, name) == (12, 0)


def test_rd_306_a_floor_is_only_what_is_durable(own_gateway: Gateway, name: str, database: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(3))
    own_gateway.fetch(name, name)
    assert own_gateway.settle(name, name, 0, 0, "accept") == "applied"
    wait_until(lambda: floor(rows) == 1)
    with refused_state_writes(database, name) as tries:
        own_gateway.settle(name, name, 1, 2, "accept")
        assert tries() > 0
        assert floor(rows) == 1
    wait_until(lambda: own_gateway.settle(name, name, 1, 2, "accept") == "applied")
    wait_until(lambda: floor(rows) == 3)


def test_rd_307_a_row_that_is_gone_comes_back(own_gateway: Gateway, name: str, database: str, rows: Rows) -> None:
    own_gateway.produce(name, *range(3))
    own_gateway.fetch(name, name)
    sql(database, "DELETE FROM log.readers WHERE group_id = $1", name)
    assert own_gateway.settle(name, name, 0, 0, "accept") == "applied"
    wait_until(lambda: floor(rows) == 1 if rows() else False)


def test_rd_308_a_gateway_that_stops_tells_its_last_floors(
    own_gateway: Gateway, stack: Stack, name: str, rows: Rows
) -> None:
    """Also: a later load of the share-partition only reads."""
    own_gateway.produce(name, *range(5))
    own_gateway.fetch(name, name)
    before = rows()
    assert own_gateway.settle(name, name, 0, 4, "accept") == "applied"
    service = stack.service("gateway")
    service.stop()
    service.start()
    wait_until(service.ready)
    own_gateway.produce(name, "next")
    own_gateway.fetch(name, name)
    assert floor(rows) in (0, 5)
    assert rows().keys() == before.keys()
    assert own_gateway.settle(name, name, 5, 5, "accept") == "applied"
    wait_until(lambda: floor(rows) == 6)


def test_rd_309_retention_spares_what_a_group_has_not_finished(own_gateway: Gateway, name: str) -> None:
    """Until the group is taken out; what goes then is counted."""
    gateway = own_gateway
    gateway.create_topic(name, retention_ms=0)
    gateway.configure(name, retention_hold_idle_ms=-1)
    gateway.fetch(name, name, max_wait_ms=0)
    gateway.produce_batches(name, 5, 5)
    gateway.fetch(name, name, max_records=10)

    def start() -> int:
        return int(gateway.describe_topic(name)["partitions"][0]["log_start_offset"])

    assert gateway.settle(name, name, 0, 2, "accept") == "applied"
    wait_until(lambda: start() == 3)
    assert gateway.settle(name, name, 3, 3, "accept") == "applied"
    wait_until(lambda: start() == 4)
    gateway.configure(name, retention_hold=False)
    wait_until(lambda: start() == 10)
    line = f'sharequeue_removed_unfinished_records_total{{group="{name}"}} 6.0'
    wait_until(lambda: line in gateway.http.get("/metrics").text)


def test_rd_310_settled_records_are_cleaned_up_without_a_limit(own_gateway: Gateway, name: str) -> None:
    gateway = own_gateway
    gateway.create_topic(name, cleanup_settled=True)
    gateway.produce_batches(name, 5, 5)
    others = [f"{name}-a", f"{name}-b"]
    for group in others:
        gateway.fetch(group, name)
    for group in others:
        assert gateway.settle(group, name, 0, 6, "accept") == "applied"
    assert gateway.settle(others[0], name, 7, 9, "accept") == "applied"
    wait_until(lambda: gateway.describe_topic(name)["partitions"][0]["log_start_offset"] == 7)
