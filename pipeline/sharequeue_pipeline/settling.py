"""Outcomes of single records inside `foreachBatch`: a job rejects, releases or renews rows; the others are accepted.

    def write(batch: DataFrame, batch_id: int) -> None:
        bad = batch.where("value.total < 0")
        settle(bad, "reject", reason="a negative total")
        batch.subtract(bad).write…

The gateway has the outcome when `settle` returns. When Spark has finished the batch, the source accepts what is left.
"""

import logging
from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.client.consuming.outcomes import RENEW, Outcome, outcome_of
from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.group_member import note_settled
from sharequeue_pipeline.source.query_end import QueryEndListener

log = logging.getLogger(__name__)

OUTCOMES: Final = ("reject", "release", "renew")
MAX_REASON: Final = 1024
PLACE: Final = ("topic", "partition", "offset")


def settle(rows: DataFrame, outcome: str, reason: str | Column | None = None, *, delay_ms: int | None = None) -> int:
    """Settle rows of the current micro-batch of a share group. Call it in `foreachBatch`.

    Args:
        rows: rows of the batch; the columns `topic`, `partition` and `offset` name the records.
        outcome: `reject` makes dead letters, `release` delivers again,
        `renew` extends the locks and changes nothing else.
        reason: why, or a column that says why; at most 1,024 characters. The dead letter has it.
        delay_ms: with `release`, how long the records are not delivered.
    Returns: how many records were settled. Records whose locks have ended are not among them, and are delivered again.
    Raises: PipelineError: a row is not in the batch, or the program has neither `session` nor `register`.
    """
    if outcome not in OUTCOMES:
        raise PipelineError(f"the outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
    if delay_ms is not None and outcome != "release":
        raise PipelineError(f"delay_ms needs the outcome release, not {outcome}")
    if outcome == "renew" and reason is not None:
        raise PipelineError("renew takes no reason")
    missing = [name for name in PLACE if name not in rows.columns]
    if missing:
        raise PipelineError(f"the column {missing[0]} is missing: topic, partition and offset name a record")
    if not isinstance(rows.sparkSession, SparkSession):
        raise PipelineError("settle does not work with Spark Connect: the query runs in another process")
    query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    found = None if query_id is None else QueryEndListener.under_way(query_id)
    if found is None:
        raise PipelineError(
            "settle needs a running micro-batch: call it in foreachBatch, in a program that made its session with "
            "sharequeue_pipeline.session or register"
        )
    wanted = _reasons_of(rows, reason)
    settled = 0
    for options, offset in found:
        held = ranges.decode(offset["ranges"])
        mine = [
            (entry, outcome_of(outcome, why, delay_ms, begun=True))
            for why, places in wanted.items()
            for entry in ranges.divided(held, places)[0]
        ]
        wanted = {why: ranges.divided(places, held)[1] for why, places in wanted.items()}
        if mine:
            settled += _settle(options, offset, mine)
    strange = [place for places in wanted.values() for place in places]
    if strange:
        raise PipelineError(
            f"{strange[0].topic}-{strange[0].partition} offset {strange[0].first_offset} is not in this micro-batch "
            "of a share group"
        )
    return settled


def _reasons_of(rows: DataFrame, reason: str | Column | None) -> dict[str | None, list[Range]]:
    """The records of rows, as ranges, by reason. A record that comes with several reasons keeps one of them."""
    why = reason if isinstance(reason, Column) else f.lit(reason)
    named = rows.select(*PLACE, f.substring(why.cast("string"), 1, MAX_REASON).alias("reason"))
    by_place = {(row.topic, row.partition, row.offset): row.reason for row in named.collect()}
    found: dict[str | None, list[Range]] = {}
    for (topic, partition, offset), text in by_place.items():
        found.setdefault(text, []).append(Range(topic, partition, offset, offset))
    return {text: ranges.joined(places) for text, places in found.items()}


def _settle(options: SourceOptions, offset: dict[str, object], outcomes: list[tuple[Range, Outcome]]) -> int:
    """Settle records of one member. Returns: how many."""
    member_id, batch = str(offset["member_id"]), int(str(offset["batch"]))
    with GroupClient(options.gateway) as gateway:
        lost = set(gateway.settle(str(offset["group"]), member_id, outcomes))
    done = [entry for entry, _ in outcomes if entry not in lost]
    if outcomes[0][1] is not RENEW:
        note_settled(member_id, batch, done)
    if lost:
        log.warning("%d records were not settled, because their locks had ended: they are delivered again", _size(lost))
    return _size(done)


def _size(entries: Iterable[Range]) -> int:
    return sum(entry.size for entry in entries)
