"""`python -m bench.memory`: the memory of 100,000 idle share-partitions and of 100,000 batches in flight in a gateway.

It makes them in this process, and compares its resident memory before and after. Exit code 1: over the limit.
"""

import gc
import sys
from pathlib import Path
from typing import Final, NamedTuple

from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.acquisition import Acquisition
from sharequeue_gateway.share_partition.batch_times import BatchTimes
from sharequeue_gateway.share_partition.machine import SharePartition

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import AcquireMode, SharePartitionKey

COUNT: Final = 100_000
IN_FLIGHT_PER_PARTITION: Final = 2_000
NOW_MS: Final = 1_700_000_000_000
PAGE: Final = 4096
LIMITS: Final = {"idle share-partition": 4096, "batch in flight": 1024}


class Extent(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def loaded(number: int, config: ShareGroupConfig) -> LedSharePartition:
    """A share-partition as a gateway keeps it, of its own group and topic."""
    machine = SharePartition(config, number, state_epoch=1, leader_epoch=1)
    machine.loaded()
    key = SharePartitionKey(f"group-{number}", f"4799b8f4-4040-412c-b59e-{number:012d}", 0)
    return LedSharePartition(key, machine, f"topic-{number}", NOW_MS)


def acquire(led: LedSharePartition, number: int) -> None:
    """Acquire one record as its own batch, and note it as the gateway does."""
    machine = led.machine
    offset = machine.next_fetch_offset()
    batches = [Extent(offset, offset, NOW_MS)]
    acquisition = Acquisition(machine, f"member-{number % 1000}", AcquireMode.RECORD_LIMIT, 1, NOW_MS + number)
    acquisition.acquire(batches, fetch_offset=offset, max_records=1)
    led.lock_entries += len(acquisition.acquired)
    led.batch_times = led.batch_times or BatchTimes()
    led.batch_times.note(batches)


def main() -> int:
    config = ShareGroupConfig(dead_letter_topic_name="")
    led: dict[SharePartitionKey, LedSharePartition] = {}
    warm = loaded(0, config)
    acquire(warm, 0)
    before = resident_bytes()
    for number in range(COUNT):
        fresh = loaded(number, config)
        led[fresh.key] = fresh
    idle = resident_bytes()
    busy = list(led.values())[: COUNT // IN_FLIGHT_PER_PARTITION]
    number = 0
    for share_partition in busy:
        for _ in range(IN_FLIGHT_PER_PARTITION):
            acquire(share_partition, number)
            number += 1
    in_flight = resident_bytes()
    costs = {"idle share-partition": (idle - before) / COUNT, "batch in flight": (in_flight - idle) / number}
    for what, cost in costs.items():
        print(f"{what}: {cost:,.0f} bytes (limit {LIMITS[what]:,})")
    return int(any(cost > LIMITS[what] for what, cost in costs.items()))


if __name__ == "__main__":
    sys.exit(main())
