"""The transaction of a write: the driver begins it, each attempt of a task writes to a part, and the driver ends it.

    driver    begin, fences an earlier driver ──────────────────────▶ commit: the parts of the tasks that Spark names
    tasks       begin a part ─ produce … produce ─▶ its id to Spark      or abort

Spark runs a task again after a crash, and a second time beside a slow one. It names one attempt of each task to the
driver, whose commit makes the parts of these attempts visible, and nothing else. So it does not matter what the others
wrote. The commit keeps a note: which batch of which query it was. If the driver dies after it, Spark runs the batch
again; the next begin answers the note, and the tasks write nothing.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions

MAX_TASKS: Final = 1000
"""Parts that one commit may name."""


class WriteTransaction(NamedTuple):
    """An open transaction of a write, as its tasks get it. `committed_note`: of the last commit under the same name."""

    transaction_id: str
    committed_note: str | None


def query_id_of(checkpoint: str) -> str:
    """The id of the query that a checkpoint belongs to. Spark writes it before the first batch."""
    path = f"{checkpoint.rstrip('/')}/metadata"
    parts = urlsplit(path)
    try:
        if parts.scheme in ("", "file"):
            text = Path(parts.path).read_text()
        else:
            system, found = fs.FileSystem.from_uri(path)
            with system.open_input_file(found) as opened:
                text = opened.read().decode()
        query_id: str = json.loads(text)["id"]
    except (OSError, ValueError, KeyError, pa.ArrowException) as fault:
        raise PipelineError(
            f"transactional=true: the id of the query cannot be read from {path}: {fault}; "
            "name the writer with the option transactionalId"
        ) from None
    return query_id


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


# Between the processes of a driver


def remember(name: str, transaction_id: str) -> None:
    """Note the open transaction for the process that ends it. Tasks that fail tell that process nothing."""
    file = _noted(name)
    if file is not None:
        file.write_text(transaction_id)


def remembered(name: str) -> str | None:
    """The transaction that this driver has begun under a name. None: it is not known."""
    file = _noted(name)
    try:
        return None if file is None else file.read_text()
    except OSError:
        return None


def _noted(name: str) -> Path | None:
    """A file in the driver's own directory for temporary files, which no other driver has."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not directory or not os.path.isdir(directory):
        return None
    return Path(directory) / f"sharequeue-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
