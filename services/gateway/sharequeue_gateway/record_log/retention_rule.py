"""Up to where retention removes records. Pure.

offsets   0        10        20        30        40
log       ├─────────────────────────────────────────┤ end
limits    ──────────────────────▶ 25                    retention.ms and .bytes ask for this
floor     ───────▶ 12                                   the lowest of the groups that hold the partition
ceiling   ─▶ 4                                          retention.unsettled.max.bytes asks for this

delete: 25       keep: 12       cleanup.settled: at least 12       the ceiling goes over all: at least 4
"""

from collections.abc import Mapping
from typing import NamedTuple


class RetentionRule(NamedTuple):
    """The settings of a topic. −1: no limit.

    `keep`: what a group holds and has not finished stays. `cleanup`: what all groups have finished goes. `max_bytes`:
    the ceiling of a partition, above which no hold counts.
    """

    retention_ms: int = -1
    retention_bytes: int = -1
    keep: bool = False
    cleanup: bool = False
    max_bytes: int = -1

    @property
    def idle(self) -> bool:
        """Return whether nothing is ever removed."""
        return self.retention_ms < 0 and self.retention_bytes < 0 and self.max_bytes < 0 and not self.cleanup

    @property
    def by_readers(self) -> bool:
        """Return whether the log's readers decide with the limits."""
        return self.keep or self.cleanup


def rule_of(config: Mapping[str, str]) -> RetentionRule:
    """The rule of a topic with these settings. A compacted topic removes nothing by retention."""
    if config["cleanup.policy"] != "delete":
        return RetentionRule()
    return RetentionRule(
        retention_ms=int(config["retention.ms"]),
        retention_bytes=int(config["retention.bytes"]),
        keep=config.get("retention.unsettled") == "keep",
        cleanup=config.get("cleanup.settled") == "true",
        max_bytes=int(config.get("retention.unsettled.max.bytes", -1)),
    )


class AskedStarts(NamedTuple):
    """The log starts that the limits ask for, each the offset of the first record that stays; 0: none."""

    limits: int = 0
    ceiling: int = 0


def new_log_start(
    rule: RetentionRule,
    log_start_offset: int,
    log_end_offset: int,
    asked: AskedStarts,
    floor: int | None,
    pointed: int | None = None,
) -> int:
    """The log start after a sweep.

    Args:
        floor: the lowest floor of the groups that hold the partition. None: no group holds it. That is not "all have
            finished it": the limits remove then, cleaning does not.
        pointed: the first record that an open dead letter without a copy points to. Cleaning stops there.
    """
    target = asked.limits
    if floor is not None:
        if rule.keep:
            target = min(target, floor)
        if rule.cleanup:
            target = max(target, floor if pointed is None else min(floor, pointed))
    return min(max(target, asked.ceiling, log_start_offset), log_end_offset)
