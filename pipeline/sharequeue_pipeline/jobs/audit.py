"""`sharequeue pipeline audit`: replay the stored state of every share-partition, and compare it with the services.

Tasks read the state and the log in parts, beside live traffic. A task looks again at each difference, and reports it if
it is the same at two looks in a row and nothing was written between them.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

import click
import msgspec

from sharequeue.cli.output import show_table
from sharequeue.protocol import apis
from sharequeue.protocol.messages.audit import (
    AuditedState,
    AuditLogQuery,
    AuditStateResponse,
    ExportStateQuery,
    LogAudit,
    LogBatch,
)
from sharequeue.protocol.messages.topics import ListTopicsQuery, TopicDescription, TopicList
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.jobs.command_line import (
    away,
    echo_json,
    gateway_at,
    gateway_options,
    job,
    json_option,
    master_option,
    say,
    start,
)
from sharequeue_pipeline.jobs.log_check import batch_faults, record_faults
from sharequeue_pipeline.jobs.state_check import Finding, findings, last_row
from sharequeue_pipeline.options import GatewayOptions
from sharequeue_pipeline.ranges import Range

DIFFERENT: Final = 4
"""The exit code if anything differs."""
LOOKS: Final = 8
PAUSE_S: Final = 0.25
STRETCH: Final = 100_000
"""Offsets of one stretch."""


class AuditCounts(NamedTuple):
    """How much was audited. `restless`: share-partitions and stretches that changed at every check."""

    share_partitions: int = 0
    state_rows: int = 0
    stretches: int = 0
    batches: int = 0
    records: int = 0
    restless: int = 0


class Stretch(NamedTuple):
    """A part of one partition's log, `end` exclusive."""

    topic: str
    topic_id: str
    partition: int
    begin: int
    end: int


Outcome = tuple[AuditCounts, list[Finding]]


# Share-partition state


def check_states(services: GatewayOptions, part: int, parts: int) -> Iterator[Outcome]:
    """Audit one part of all share-partitions, page by page. `services`: with the cluster token."""
    with GatewayClient(services) as gateway:
        after = 0
        while True:
            query = ExportStateQuery(after=after, part=part, parts=parts)
            page: AuditStateResponse = gateway.ask(apis.AUDIT_SHARE_STATE, query)
            found: list[Finding] = []
            restless = 0
            for audited in page.share_partitions:
                confirmed = _confirmed(gateway, audited) if findings(audited) else []
                found += confirmed or []
                restless += confirmed is None
            rows = sum(len(audited.rows) for audited in page.share_partitions)
            yield AuditCounts(share_partitions=len(page.share_partitions), state_rows=rows, restless=restless), found
            if page.next_after is msgspec.UNSET:
                return
            after = page.next_after


def _confirmed(gateway: GatewayClient, audited: AuditedState) -> list[Finding] | None:
    """The differences that are the same at two looks, with no write between them; None if there was a write every time.

    State of a deleted topic is about to be deleted as well: it counts as a difference only at the last look.
    """
    for look in range(1, LOOKS + 1):
        time.sleep(PAUSE_S)
        query = ExportStateQuery(
            group_id=audited.group_id, topic_id=audited.topic_id, partition=audited.partition, page_size=1
        )
        page: AuditStateResponse = gateway.ask(apis.AUDIT_SHARE_STATE, query)
        if not page.share_partitions:
            return []
        before, audited = audited, page.share_partitions[0]
        again = findings(audited)
        if not again:
            return []
        leaving = any(finding.kind == "orphaned state" for finding in again) and look < LOOKS
        if last_row(before) == last_row(audited) and not leaving:
            earlier = set(findings(before))
            return [finding for finding in again if finding in earlier]
    return None


# The log


def stretches(gateway: GatewayClient) -> Iterator[Stretch]:
    """The logs of all partitions as they are now, in stretches."""
    query = ListTopicsQuery()
    while True:
        page: TopicList = gateway.ask(apis.LIST_TOPICS, query)
        for topic in page.topics:
            try:
                described: TopicDescription = gateway.describe(topic.name)
            except PipelineError:
                continue  # deleted since it was listed
            for entry in described.partitions:
                for begin in range(entry.log_start_offset, entry.log_end_offset, STRETCH):
                    end = min(begin + STRETCH, entry.log_end_offset)
                    yield Stretch(topic.name, described.topic_id, entry.partition, begin, end)
        if page.next_page_token is None:
            return
        query = ListTopicsQuery(page_token=page.next_page_token)


def check_stretch(services: GatewayOptions, reading: GatewayOptions, stretch: Stretch, *, records: bool) -> Outcome:
    """Audit one stretch.

    Args:
        services: with the cluster token, for the stored batches.
        reading: with the caller's token, for the records.
        records: read the records, and count them by batch.
    """
    with GatewayClient(services) as gateway, GatewayClient(reading) as reader:
        faults: set[str] | None = None
        for look in range(LOOKS):
            log = _log_of(gateway, stretch)
            if log.deleted:
                return AuditCounts(stretches=1), []
            read = 0
            again = set(batch_faults(log.batches, stretch.begin, stretch.end, log.log_start_offset))
            if records and stretch.end > log.log_start_offset:
                try:
                    counted = _counted(reader, stretch, log)
                except PipelineError as fault:
                    if away(str(fault)):
                        raise
                    again.add(f"the records from {stretch.begin} on cannot be read: {fault}")
                else:
                    read = sum(counted.values())
                    own = [batch for batch in log.batches if batch.base_offset >= stretch.begin]
                    again |= set(record_faults(own, counted, _log_of(gateway, stretch).log_start_offset))
            if not again or again == faults:
                where = f"{stretch.topic}-{stretch.partition}"
                found = [Finding("log", where, fault) for fault in sorted(again)]
                return AuditCounts(stretches=1, batches=len(log.batches), records=read), found
            faults = again
            if look < LOOKS - 1:
                time.sleep(PAUSE_S)
        return AuditCounts(stretches=1, restless=1), []


def _log_of(gateway: GatewayClient, stretch: Stretch) -> LogAudit:
    """The bounds of the log, with the batches of the stretch: the first one may begin before it."""
    batches: list[LogBatch] = []
    offset = stretch.begin
    while True:
        page: LogAudit = gateway.ask(
            apis.AUDIT_LOG,
            AuditLogQuery(offset=offset, page_size=10_000),
            topic_id=stretch.topic_id,
            partition=stretch.partition,
        )
        new = [batch for batch in page.batches if not batches or batch.base_offset > batches[-1].base_offset]
        batches += [batch for batch in new if batch.base_offset < stretch.end]
        if not new or new[-1].base_offset >= stretch.end:
            page.batches = batches
            return page
        offset = new[-1].base_offset


def _counted(reader: GatewayClient, stretch: Stretch, log: LogAudit) -> dict[int, int]:
    """The number of records read, by the base offset of their batch; under -1 those that belong to no batch."""
    begin = max(stretch.begin, log.log_start_offset)
    last = max((batch.last_offset for batch in log.batches), default=-1)
    bases = [batch.base_offset for batch in log.batches]
    counted: dict[int, int] = {}
    if last < begin:
        return counted
    for records in reader.read(Range(stretch.topic, stretch.partition, begin, last, 0), "read_uncommitted"):
        for offset in records.column("offset").to_pylist():
            place = bisect_right(bases, offset) - 1
            base = bases[place] if place >= 0 and log.batches[place].last_offset >= offset else -1
            counted[base] = counted.get(base, 0) + 1
    return counted


# The command


@click.command()
@click.option(
    "--cluster-token",
    envvar="SHAREQUEUE_CLUSTER_TOKEN",
    required=True,
    help="the token of the services; `sharequeue up` keeps it in the file cluster.token",
)
@click.option("--records/--no-records", default=True, show_default=True, help="read and count the records of the log")
@gateway_options
@master_option
@json_option
@job
def command(
    cluster_token: str,
    records: bool,
    url: str,
    token: str | None,
    timeout_s: int,
    master: str | None,
    as_json: bool,
) -> int:
    """Check the stored state of share-partitions and the log, against each other and against the services' answers.

    It names each difference. Exit code 4 if anything differs.
    """
    services, reading = gateway_at(url, cluster_token, timeout_s), gateway_at(url, token, timeout_s)
    with GatewayClient(services) as gateway:
        gateway.ask(apis.AUDIT_SHARE_STATE, ExportStateQuery(page_size=1))  # fail before Spark starts
    spark = start("audit", master)
    context = spark.sparkContext
    parts = max(1, context.defaultParallelism)
    states = (
        context.parallelize(range(parts), parts).flatMap(lambda part: check_states(services, part, parts)).collect()
    )
    with GatewayClient(reading) as gateway:
        wanted = list(stretches(gateway))
    logs: list[Outcome] = []
    if wanted:
        tasks = min(len(wanted), 4 * parts)
        logs = (
            context.parallelize(wanted, tasks)
            .map(lambda stretch: check_stretch(services, reading, stretch, records=records))
            .collect()
        )
    outcomes = [*states, *logs]
    found = sorted({finding for _, some in outcomes for finding in some})
    checked = AuditCounts(*(sum(counts) for counts in zip(*(checked for checked, _ in outcomes), strict=True)))
    if as_json:
        echo_json({"checked": checked._asdict(), "differences": [finding._asdict() for finding in found]})
    else:
        if found:
            show_table(("kind", "where", "difference"), found)
        say(
            f"{len(found)} differences in {checked.share_partitions} share-partitions ({checked.state_rows} rows) "
            f"and {checked.batches} batches of the log ({checked.records} records read); "
            f"{checked.restless} changed at every check"
        )
    return DIFFERENT if found else 0


if __name__ == "__main__":
    command()
