"""The sweep that ends locks, by what happens in its pauses."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from tests.core.share_partition_driver import Driver


def test_the_sweep_ends_nothing_of_what_was_unloaded_in_one_of_its_pauses() -> None:
    index, ended = LedIndex(), []
    for partition in range(2):
        driver = Driver()
        index.add(LedSharePartition(SharePartitionKey("g", "t", partition), driver.machine, "orders", driver.now_ms))

    def expire_if_due(led: LedSharePartition, _: int) -> None:
        ended.append(led.key.partition)
        for other in [other for other in index if other is not led]:
            index.remove(other)

    leader = cast(Any, SimpleNamespace(_clock=Clock(1000), led=index, expire_if_due=expire_if_due))
    asyncio.run(Leader.expire_all_due(leader))
    assert ended == [0]
