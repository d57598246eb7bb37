"""Decides how long a record waits before it is delivered again, by the settings of its group. Pure.

    share.retry.backoff.ms   1000,5000,30000
    delivery of the record   1st ends ── 1 s ─▶ 2nd ends ── 5 s ─▶ 3rd ends ── 30 s ─▶ 4th ends ── 30 s ─▶ …

The wait begins with the event that ended the delivery: a release without a delay of its own, or the deadline of a lock,
at any time and by any leader that finds this end. The jitter is a hash, not a random number: a run stays one run, and
each leader finds the same time.
"""

import zlib
from typing import Final

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import MAX_DELAY_MS, SharePartitionKey

STEP_MS: Final = 100
"""Times are rounded up to whole steps, so that records which wait equally long stay one run."""


def jitter_seed(key: SharePartitionKey) -> int:
    """The part of the jitter that a share-partition gives."""
    return zlib.crc32(f"{key.group_id}/{key.topic_id}/{key.partition}".encode())


def retry_at_ms(config: ShareGroupConfig, seed: int, batch_first: int, attempt: int, ended_at_ms: int) -> int:
    """The time from which a record may be delivered again, after its delivery ended at `ended_at_ms`.

    Args:
        seed: see `jitter_seed`. batch_first: the first offset of the in-flight batch. attempt: which delivery ended,
            from 1 on; 0: none was begun, and there is no wait.
    Returns: milliseconds since the epoch, a multiple of STEP_MS; 0: at once.
    """
    waits = config.retry_backoff_ms
    if not waits or attempt < 1:
        return 0
    wait_ms = waits[min(attempt, len(waits)) - 1]
    if not wait_ms:
        return 0
    chance = zlib.crc32(f"{batch_first}/{attempt}".encode(), seed)
    wait_ms += wait_ms * config.retry_jitter_percent * chance // (100 << 32)
    return -(-(ended_at_ms + min(wait_ms, MAX_DELAY_MS)) // STEP_MS) * STEP_MS
