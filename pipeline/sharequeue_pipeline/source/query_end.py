"""Settling the last batches of a streaming query after the query has ended.

Spark does not tell a source that its query has ended, but it tells the listeners of the driver program:

- the last finished batch is accepted;
- after a failure, the failed batch is released. With `onError=reject`, a batch of one record is rejected: of a larger
  one nobody knows which record is at fault, and `isolation` finds it;
- if Spark had begun no job of the failed batch, no record of it is at fault, and the delivery does not count.

The offsets of both batches come from Spark's events, and the options of the sources from its plan. Without a listener
the locks run out: the driver was killed, or another program registered the format.
"""

import json
import logging
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sharequeue.client.consuming.outcomes import ACCEPT, Outcome
from sharequeue_pipeline import ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import LOCKS, GroupClient
from sharequeue_pipeline.options import SourceOptions, source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.group_member import settled_by_job

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 10_000
MAX_REASON: Final = 1000
_BATCH: Final = re.compile(r"\bbatch = (\d+)")
"""In Spark's description of a micro-batch's jobs."""


@dataclass
class _Run:
    """One run of a query: its handle, and the last finished offset of each of its members.

    `batch`: Spark's number of the last finished batch. `since_ms`: a time before the next one began.
    """

    id: str
    query: Any
    since_ms: float
    batch: int = -1
    shares: bool = False
    """Whether it was said that another query shares its group."""
    finished: dict[str, dict[str, Any]] = field(default_factory=dict)


class QueryEndListener(StreamingQueryListener):
    """Settles for all queries of one session."""

    _of: ClassVar[dict[str, "QueryEndListener"]] = {}

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._runs: dict[str, _Run] = {}
        self._run_ids: set[str] = set()
        """Of all runs so far."""

    @classmethod
    def listen(cls, spark: SparkSession) -> None:
        """Add a listener to a session, unless it has one."""
        key = f"{spark.sparkContext.applicationId}/{id(spark._jsparkSession)}"
        if key not in cls._of:
            cls._of[key] = cls(spark)
            spark.streams.addListener(cls._of[key])

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self._spark.streams.get(str(event.id))
        if query is not None:  # otherwise it has ended already, without a finished batch
            run_id = str(event.runId)
            self._run_ids.add(run_id)
            self._runs[run_id] = _Run(run_id, query, _ms(event.timestamp))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        run = self._runs.get(str(event.progress.runId))
        if run is not None:
            run.batch, run.since_ms = event.progress.batchId, _ms(event.progress.timestamp)
            for source in event.progress.sources:
                for offset in _share_offsets(f"[{source.endOffset}]"):
                    run.finished[offset["member_id"]] = offset
                    self._tell_of_sharing(run, offset)

    def _tell_of_sharing(self, run: _Run, offset: dict[str, Any]) -> None:
        """Say once that another query of this session reads the same topic for the same group."""
        group, topics = offset["group"], offset["ranges"].keys()
        for other in self._runs.values():
            shares = any(each["group"] == group and topics & each["ranges"].keys() for each in other.finished.values())
            if shares and other is not run and not run.shares:
                run.shares = other.shares = True
                log.warning(
                    "two queries read for group %s, so each record goes to one of them: give each query a group of its own "
                    "if it needs all records",
                    group,
                )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run = self._runs.pop(str(event.runId), None)
        if run is None:
            return
        failed: dict[str, dict[str, Any]] = {}
        exception = run.query._jsq.exception()
        if exception.isDefined():
            for offset in _share_offsets(exception.get().startOffset()):
                run.finished.setdefault(offset["member_id"], offset)
            failed = {offset["member_id"]: offset for offset in _share_offsets(exception.get().endOffset())}
        members = {*run.finished, *failed}
        if members:
            for offset in (*run.finished.values(), *failed.values()):
                offset["left"] = _left(offset)  # now: the notes end with Spark, which the program may stop
            reason = _reason(event.exception)
            sources = _sources_of(run.query)
            settle = threading.Thread(target=self._settle, args=(members, sources, run, failed, reason))
            settle.start()  # not a daemon: the program waits for it at its end

    def _settle(
        self,
        members: set[str],
        sources: dict[str, SourceOptions],
        run: _Run,
        failed: dict[str, Any],
        reason: str | None,
    ) -> None:
        begun = bool(failed) and self._has_begun(run)
        for member_id in members:
            done, under_way = run.finished.get(member_id), failed.get(member_id)
            last = under_way or done or {}
            group, raised, options = last["group"], last["raised"], sources[last["group"]]
            to = replace(options.gateway, timeout_ms=min(options.gateway.timeout_ms, TIMEOUT_MS))
            try:
                with GroupClient(to) as gateway:
                    if done is not None:
                        gateway.acknowledge_held(group, member_id, done["left"], ACCEPT)
                    if under_way is not None and (done is None or under_way["batch"] > done["batch"]):
                        held = under_way["left"]
                        type = options.on_error if begun and sum(entry.size for entry in held) == 1 else "release"
                        gateway.acknowledge_held(group, member_id, held, Outcome(type, reason, begun=begun))
                    if raised and gateway.group_config(group)[LOCKS] == str(raised[1]):
                        gateway.set_locks(group, raised[0])
            except PipelineError as fault:
                log.warning("the records of member %s are delivered again when their locks end: %s", member_id, fault)

    def _has_begun(self, run: _Run) -> bool:
        """Return whether Spark may have begun a job of the batch behind the run's last finished one.

        Jobs of a run have its id as their group, and the number of their batch in their description. A job without
        them may be one of the program's own, begun in `foreachBatch`.
        """
        context = self._spark.sparkContext._jsc.sc()
        try:
            context.listenerBus().waitUntilEmpty(TIMEOUT_MS)  # the store of jobs is a listener as well
            jobs = context.statusStore().jobsList(None).iterator()  # the last one first
            while jobs.hasNext():
                job = jobs.next()
                submitted, group = job.submissionTime(), job.jobGroup()
                if submitted.isDefined() and submitted.get().getTime() < run.since_ms:
                    return False
                group_id = group.get() if group.isDefined() else None
                if group_id == run.id:
                    description = job.description()
                    number = _BATCH.search(description.get() if description.isDefined() else "")
                    if number is None or int(number[1]) > run.batch:
                        return True
                elif group_id not in self._run_ids:
                    return True
        except Py4JError:  # the session ends, and its jobs are not known any more
            return True
        return False

    @classmethod
    def under_way(cls, query_id: str) -> list[tuple[SourceOptions, dict[str, Any]]] | None:
        """The sources of a query that read for groups, with their offsets of its current batch. None: there is no such
        query."""
        for listener in cls._of.values():
            query = listener._spark.streams.get(query_id)
            if query is not None:
                sources, found = _sources_of(query), []
                offsets = query._jsq.streamingQuery().availableOffsets().values().iterator()
                while offsets.hasNext():
                    mine = _share_offsets(f"[{offsets.next().json()}]")
                    found += [(sources[offset["group"]], offset) for offset in mine]
                return found
        return None


def _sources_of(query: Any) -> dict[str, SourceOptions]:
    """The options of the sources of a query that read for groups, by group."""
    found = {}
    leaves = query._jsq.streamingQuery().logicalPlan().collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() == "StreamingDataSourceV2ScanRelation":
            with suppress(PipelineError):  # a source of another format
                options = source_options(dict(leaf.relation().options().asCaseSensitiveMap()))
                found[options.group or ""] = options
    return found


def _left(offset: dict[str, Any]) -> list[Range]:
    """The ranges of a batch that its job has not settled."""
    return ranges.divided(ranges.decode(offset["ranges"]), settled_by_job(offset["member_id"], offset["batch"]))[1]


def _ms(timestamp: str) -> float:
    """The time of an event, in ms since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp() * 1000


def _share_offsets(text: str | None) -> list[dict[str, Any]]:
    """The offsets that belong to share groups, out of a JSON list of the offsets of all sources."""
    try:
        offsets = json.loads(text or "[]")
    except ValueError:  # Spark writes a dash for a source without an offset
        return []
    return [offset for offset in offsets if isinstance(offset, dict) and "member_id" in offset and "ranges" in offset]


def _reason(exception: str | None) -> str | None:
    """The one line of an exception that names its cause: after the frames of a Python traceback, or the first line."""
    if exception is None:
        return None
    lines = [line for line in exception.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    if not lines:
        return None
    traced = "Traceback (most recent call last)" in lines[0]
    line = next((line for line in lines[1:] if not line.startswith("SQLSTATE")), lines[0]) if traced else lines[0]
    return line[:MAX_REASON]
