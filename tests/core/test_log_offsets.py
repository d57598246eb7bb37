"""Where a read of the log begins and ends, what it must refuse, and what was deleted before it was read."""

import json
from typing import Any

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import Offsets, source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source import log_offsets
from sharequeue_pipeline.source.log_offsets import Bounds

BOUNDS: Bounds = {("t", 0): (0, 50), ("t", 1): (20, 50)}
ENDS = {place: end for place, (_, end) in BOUNDS.items()}


def offsets(first: int, second: int) -> Offsets:
    return {"t": {0: first, 1: second}}


def bounds_of_read(starting: str | Offsets, ending: str | Offsets, *, fail: bool = True) -> list[tuple[int, int]]:
    """(first offset, end) of both partitions."""
    given = {
        "startingOffsets": starting if isinstance(starting, str) else json.dumps(starting),
        "endingOffsets": ending if isinstance(ending, str) else json.dumps(ending),
    }
    parsed = source_options({"topics": "t", **given})
    log_offsets.check_batch(parsed.starting)
    starts = log_offsets.starts_of(parsed.starting, BOUNDS, fail_on_data_loss=fail)
    ends = log_offsets.ends_of(parsed.ending, BOUNDS, starts, fail_on_data_loss=fail)
    return [(starts[place], ends[place]) for place in BOUNDS]


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ("earliest", "latest", [(0, 50), (20, 50)]),
        (offsets(-2, -2), offsets(-1, -1), [(0, 50), (20, 50)]),
        (offsets(40, 30), offsets(50, 30), [(40, 50), (30, 30)]),
        (offsets(50, 50), "latest", [(50, 50), (50, 50)]),
    ],
)
def test_a_read_begins_and_ends_where_its_options_say(
    starting: str | Offsets, ending: str | Offsets, expected: list[tuple[int, int]]
) -> None:
    assert bounds_of_read(starting, ending) == expected


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (offsets(40, 20), offsets(10, 50), "endingOffsets names offset 10 of t-0, before the offset 40 to begin at"),
        (offsets(-1, 20), "latest", "startingOffsets of spark.read cannot be latest"),
        ("latest", "latest", "startingOffsets of spark.read cannot be latest"),
        ("earliest", offsets(-2, 50), "endingOffsets cannot be -2 .earliest., as for t-0"),
        ("earliest", "earliest", "endingOffsets cannot be earliest"),
        (offsets(51, 20), "latest", "startingOffsets names offset 51 of t-0, which ends at 50"),
        ("earliest", offsets(51, 20), "endingOffsets names offset 51 of t-0, which ends at 50"),
        ({"t": {0: 1}}, "latest", "startingOffsets names no offset of t-1: name every partition"),
        ("earliest", {"t": {1: 30}}, "endingOffsets names no offset of t-0: name every partition"),
        ({"t": {0: 1, 1: 20, 2: 0}}, "latest", "startingOffsets names t-2, which is not among"),
        (offsets(0, 19), "latest", "t-1: the offsets 19 to 19 were deleted before they were read; set failOnDataLoss"),
        ("earliest", offsets(50, 10), "endingOffsets names offset 10 of t-1, before the offset 20 to begin at"),
    ],
)
def test_offsets_that_cannot_be_meant_are_refused(
    starting: str | Offsets, ending: str | Offsets, expected: str
) -> None:
    with pytest.raises(PipelineError, match=expected):
        bounds_of_read(starting, ending)


def test_deleted_offsets_are_left_out_if_data_may_be_lost() -> None:
    assert bounds_of_read(offsets(0, 5), offsets(10, 12), fail=False) == [(0, 10), (20, 20)]
    assert bounds_of_read(offsets(0, 30), offsets(10, 12), fail=False) == [(0, 10), (30, 30)]


def test_deleted_offsets_are_those_between_the_checkpoint_and_the_log_start() -> None:
    assert log_offsets.deleted({("t", 0): 0, ("t", 1): 20}, BOUNDS, ENDS) == []
    assert log_offsets.deleted({("t", 0): 50, ("t", 1): 7}, BOUNDS, ENDS) == [Range("t", 1, 7, 19)]
    assert log_offsets.deleted({("t", 0): 3}, BOUNDS, ENDS) == [Range("t", 1, 0, 19)]  # a partition that was added


def test_a_log_that_ends_before_the_checkpoint_is_refused() -> None:
    with pytest.raises(PipelineError, match="t-0 ends at offset 50, before the offset 51 of the checkpoint"):
        log_offsets.deleted({("t", 0): 51}, BOUNDS, ENDS)


def test_an_offset_of_a_stream_is_read_back() -> None:
    places = {("t", 0): 17, ("t", 10): 3, ("u", 0): 0}
    encoded = log_offsets.encode(places, {"t": "id"}, 5)
    assert log_offsets.decode(json.loads(json.dumps(encoded))) == places
    assert encoded["lost"] == 5


def test_what_is_not_stable_yet_is_not_taken_for_a_lost_log() -> None:
    """A query that read all records before reads committed ones now."""
    stable: Bounds = {("t", 0): (0, 10), ("t", 1): (20, 30)}
    assert log_offsets.deleted({("t", 0): 50, ("t", 1): 30}, stable, ENDS) == []


@pytest.mark.parametrize("offset", [{"ranges": {}, "session": 1}, {}, ["log"], "log"])
def test_the_checkpoint_of_another_source_is_refused(offset: Any) -> None:
    with pytest.raises(PipelineError, match="the checkpoint was written by another source"):
        log_offsets.decode(offset)


def test_a_topic_that_was_created_again_is_refused() -> None:
    offset = log_offsets.encode({("t", 0): 17}, {"t": "id"}, 0)
    log_offsets.check_topics(offset, {"t": "id", "other": "x"})
    log_offsets.check_topics(offset, {"other": "x"})  # the query reads it no longer
    log_offsets.check_topics({"log": {"t": {"0": 17}}}, {"t": "new"})  # no ids are known
    with pytest.raises(PipelineError, match=r"'t' was deleted and created again \(its id was id and is new"):
        log_offsets.check_topics(offset, {"t": "new"})


@pytest.mark.parametrize("starting", [{"t": {0: -1}, "u": {0: 5}}, {"t": {0: 5}, "u": {0: 5, 1: -1}}])
def test_no_topic_of_a_batch_begins_at_its_latest_offset(starting: Offsets) -> None:
    with pytest.raises(PipelineError, match=r"startingOffsets of spark\.read cannot be latest"):
        log_offsets.check_batch(starting)
