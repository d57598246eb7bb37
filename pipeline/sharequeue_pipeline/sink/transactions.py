"""The transaction of a write: the driver begins it, each attempt of a task writes to a part, and the driver ends it.

    driver    begin, fences an earlier driver ──────────────────────▶ commit: the parts of the tasks that Spark names
    tasks       begin a part ─ produce … produce ─▶ its id to Spark      or abort

Spark runs a task again after a crash, and a second time beside a slow one. It names one attempt of each task to the
driver, whose commit makes the parts of these attempts visible, and nothing else. So it does not matter what the others
wrote. The commit keeps a note: which batch of which query it was. If the driver dies after it, Spark runs the batch
again; the next begin answers the note, and the tasks write nothing.

If the batch came from share groups, the commit accepts its records, too: they are settled and the rows are visible, or
neither. Spark's checkpoint names the members of the batch, and each of them has left a note of what it gave to the
tasks. If a lock has ended, the commit is refused, and the batch fails.
"""

import json
import re
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyarrow import fs

from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.messages.transactions import MemberAcknowledgements
from sharequeue_pipeline import driver_notes, ranges
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.ranges import Given

MAX_TASKS: Final = 1000
"""Parts that one commit may name."""
_UNREADABLE: Final = (OSError, ValueError, KeyError, pa.ArrowException)
_MEMBER: Final = re.compile(r"member_id\W+([0-9a-f-]{36})")
"""In Spark's file of a batch's offsets."""


class WriteTransaction(NamedTuple):
    """An open transaction of a write, as its tasks get it. `committed_note`: of the last commit under the same name."""

    transaction_id: str
    committed_note: str | None


def query_id_of(checkpoint: str) -> str:
    """The id of the query that a checkpoint belongs to. Spark writes it before the first batch."""
    try:
        query_id: str = json.loads(_read(checkpoint, "metadata"))["id"]
    except _UNREADABLE as fault:
        raise PipelineError(
            f"transactional=true: the id of the query cannot be read from {checkpoint.rstrip('/')}/metadata: {fault}; "
            "name the writer with the option transactionalId"
        ) from None
    return query_id


def given_by_groups(options: SinkOptions, batch: int) -> dict[str, MemberAcknowledgements]:
    """Find what the commit of a micro-batch settles: the records that share groups gave to its tasks, by member.

    It leaves out groups that may belong to another service, and all groups of a query with state: a batch that runs
    again after its commit needs its records for the state. The source accepts what is left out later.
    Raises: PipelineError: the checkpoint cannot be read. With a transactionalId it need not be: then there are none.
    """
    try:
        offsets = _read(options.checkpoint or "", f"offsets/{batch}")
        system, state = _place(options.checkpoint or "", "state")
        if system.get_file_info(state).type is fs.FileType.Directory:
            return {}
    except _UNREADABLE as fault:
        if options.transactional_id is not None:
            return {}
        raise PipelineError(f"transactional=true: the offsets of batch {batch} cannot be read: {fault}") from None
    settles = {}
    for member_id in sorted(set(_MEMBER.findall(offsets))):
        note = driver_notes.find(member_id)
        given = msgspec.json.decode(note, type=Given) if note else None
        if given is not None and given.ranges and given.url == options.gateway.url:
            accepted = [
                Acknowledgement(
                    topic=entry.topic,
                    topic_id=entry.topic_id,
                    partition=entry.partition,
                    first_offset=entry.first_offset,
                    last_offset=entry.last_offset,
                    type="accept",
                    delivery_count=entry.delivery_count,
                )
                for entry in ranges.decode(given.ranges)
            ]
            settles[member_id] = MemberAcknowledgements(
                group_id=given.group, member_id=member_id, acknowledgements=accepted
            )
    return settles


def _read(checkpoint: str, name: str) -> str:
    """A file of a checkpoint."""
    system, path = _place(checkpoint, name)
    with system.open_input_file(path) as opened:
        text: str = opened.read().decode()
    return text


def _place(checkpoint: str, name: str) -> tuple[Any, str]:
    """Find a file of a checkpoint. Returns: its file system, and the path in it."""
    path = f"{checkpoint.rstrip('/')}/{name}"
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return fs.LocalFileSystem(), parts.path
    found: tuple[Any, str] = fs.FileSystem.from_uri(path)
    return found


def check_stream(options: SinkOptions) -> None:
    """Raises: PipelineError: the transactions of this stream would have no name."""
    if options.transactional_id is None and options.checkpoint is None:
        raise PipelineError(
            "transactional=true names its transactions by the query: set the option checkpointLocation on this writer, "
            "or name them with transactionalId"
        )


def begin(options: SinkOptions, name: str | None) -> WriteTransaction:
    """Begin the transaction of a write. What an earlier driver has open under the same name is aborted."""
    with GatewayClient(options.gateway) as gateway:
        begun = gateway.begin_transaction(name, options.transaction_timeout_ms)
    return WriteTransaction(begun.transaction_id, begun.committed_note)


def is_committed(transaction: WriteTransaction, label: str | None) -> bool:
    """Return whether the batch that is to be written was committed before.

    Raises: PipelineError: a later batch of the same query was.
    """
    note = transaction.committed_note
    if note is None or label is None:
        return False
    query, _, batch = label.rpartition(":")
    noted_query, _, noted = note.rpartition(":")
    if query and noted_query == query and batch.isdigit() and noted.isdigit() and int(noted) > int(batch):
        raise PipelineError(
            f"batch {noted} of this query is committed, and batch {batch} runs again: the checkpoint is older than that; "
            "start the query with a new checkpoint"
        )
    return note == label
