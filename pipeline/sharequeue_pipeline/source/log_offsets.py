"""Offsets of the log: as options name them, as a stream's checkpoint holds them, and what was deleted between. Pure.

The offset of a stream of the log:

    {"log": {"orders": {"0": 17}}, "topic_ids": {"orders": "4799b8f4-…"}, "lost": 0}

It holds the next offset of each partition. The topic ids tell a topic from another one of the same name, whose offsets
mean other records. `lost` counts the offsets that were deleted before the stream read them (failOnDataLoss=false).
The offset of the first micro-batch has `began` too, where the stream began: Spark does not store that. It asks again if
it repeats the micro-batch after a crash, and by then `latest` is another offset.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sharequeue_pipeline.errors import PipelineError, data_loss
from sharequeue_pipeline.options import EARLIEST, EARLIEST_OFFSET, LATEST, LATEST_OFFSET, Offsets
from sharequeue_pipeline.ranges import Range, by_place, by_topic

Place = tuple[str, int]
"""Topic and partition."""
Bounds = dict[Place, tuple[int, int]]
"""Log start and log end."""


class Log(NamedTuple):
    """The topics of a read: their ids, and the bounds of every partition.

    `bounds`: up to the last stable offset for a read of committed records; `log_ends`: up to the log end.
    """

    topic_ids: dict[str, str]
    bounds: Bounds
    log_ends: Mapping[Place, int]


def check_batch(starting: str | Offsets) -> None:
    """Raises: PipelineError: a batch would begin at the latest offset."""
    if starting == LATEST or (
        not isinstance(starting, str) and any(LATEST_OFFSET in found.values() for found in starting.values())
    ):
        raise PipelineError("startingOffsets of spark.read cannot be latest (-1): nothing would be read")


def starts_of(given: str | Offsets, bounds: Bounds, *, fail_on_data_loss: bool) -> dict[Place, int]:
    """The offset of every partition to begin at, as `startingOffsets` names it. Raises: PipelineError."""
    if isinstance(given, str):
        return {place: start if given == EARLIEST else end for place, (start, end) in bounds.items()}
    starts = {}
    for place, offset in named(given, bounds, "startingOffsets").items():
        start, end = bounds[place]
        if offset in (LATEST_OFFSET, EARLIEST_OFFSET):
            starts[place] = end if offset == LATEST_OFFSET else start
            continue
        _check_end(place, offset, end, "startingOffsets")
        if offset < start and fail_on_data_loss:
            raise data_loss(*place, offset, start - 1)
        starts[place] = max(offset, start)
    return starts


def ends_of(
    given: str | Offsets, bounds: Bounds, starts: Mapping[Place, int], *, fail_on_data_loss: bool
) -> dict[Place, int]:
    """The offset of every partition to end before, as `endingOffsets` names it. Raises: PipelineError."""
    if given == LATEST:
        return {place: end for place, (_, end) in bounds.items()}
    if isinstance(given, str):
        raise PipelineError("endingOffsets cannot be earliest: nothing would be read")
    ends = {}
    for place, offset in named(given, bounds, "endingOffsets").items():
        start, end = bounds[place]
        if offset == EARLIEST_OFFSET:
            raise PipelineError(f"endingOffsets cannot be -2 (earliest), as for {_shown(place)}: nothing would be read")
        if offset == LATEST_OFFSET:
            ends[place] = end
            continue
        _check_end(place, offset, end, "endingOffsets")
        if offset < start and not fail_on_data_loss:
            ends[place] = starts[place]
            continue
        if offset < starts[place]:
            raise PipelineError(
                f"endingOffsets names offset {offset} of {_shown(place)}, before the offset {starts[place]} to begin at"
            )
        ends[place] = offset
    return ends


def named(given: Offsets, bounds: Bounds, option: str) -> dict[Place, int]:
    """Return what an option gives to every partition that is read. Raises: PipelineError: it names others, or not
    all."""
    found = {(topic, partition): offset for topic, of_topic in given.items() for partition, offset in of_topic.items()}
    for place in found:
        if place not in bounds:
            raise PipelineError(f"{option} names {_shown(place)}, which is not among the partitions read")
    for place in bounds:
        if place not in found:
            raise PipelineError(
                f"{option} names no offset of {_shown(place)}: name every partition that is read, "
                "with -2 for its earliest and -1 for its latest offset"
            )
    return found


def _check_end(place: Place, offset: int, end: int, option: str) -> None:
    if offset > end:
        raise PipelineError(f"{option} names offset {offset} of {_shown(place)}, which ends at {end}")


def _shown(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


# What was deleted


def deleted(begun: Mapping[Place, int], bounds: Bounds, log_ends: Mapping[Place, int]) -> list[Range]:
    """Return what left the log before it was read. Raises: PipelineError: the log ends before an offset that was read.

    `begun`: the next offsets to read. A partition that they lack was made since, so it is read from offset 0 on.
    """
    found = []
    for place, (start, _) in sorted(bounds.items()):
        at = begun.get(place, 0)
        if at > log_ends[place]:
            raise PipelineError(
                f"{_shown(place)} ends at offset {log_ends[place]}, before the offset {at} of the checkpoint: its log was put back "
                "from a backup? Start the query with a new checkpoint"
            )
        if at < start:
            found.append(Range(*place, at, start - 1))
    return found


# The offset of a stream


def encode(
    places: Mapping[Place, int], topic_ids: dict[str, str], lost: int, began: Mapping[Place, int] | None = None
) -> dict[str, Any]:
    first = {} if began is None else {"began": by_topic(began)}
    return {"log": by_topic(places), "topic_ids": topic_ids, "lost": lost, **first}


def begun(start: dict[str, Any], end: dict[str, Any]) -> dict[Place, int]:
    """Return where the micro-batch between two offsets begins."""
    return decode({"log": end["began"]} if "began" in end and start != end else start)


def decode(offset: dict[str, Any]) -> dict[Place, int]:
    """The next offset of each partition. Raises: PipelineError: it is the offset of another source."""
    if not isinstance(offset, dict) or "log" not in offset:
        raise PipelineError(
            "the checkpoint was written by another source (a share group?): give this query a new checkpoint"
        )
    return by_place(offset["log"])


def check_topics(offset: dict[str, Any], topic_ids: dict[str, str]) -> None:
    """Raises: PipelineError: a topic was deleted and created again, so the offset means other records."""
    for topic, topic_id in offset.get("topic_ids", {}).items():
        found = topic_ids.get(topic, topic_id)
        if found != topic_id:
            raise PipelineError(
                f"the topic {topic!r} was deleted and created again (its id was {topic_id} and is {found}), "
                "so the offsets in the checkpoint mean other records: start the query with a new checkpoint"
            )
