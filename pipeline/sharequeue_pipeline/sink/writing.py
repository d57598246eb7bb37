"""The common part of both writers. Each task cuts its records into requests and sends them, with keys.

The folder's docstring says what a key names; `attempts` says how a repeated task writes nothing twice, and
`transactions` how a write is one transaction.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql import types as spark
from pyspark.sql.datasource import WriterCommitMessage

from sharequeue.protocol.messages.transactions import MemberAcknowledgements
from sharequeue_pipeline import driver_notes
from sharequeue_pipeline.ahead import in_order
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink import columns
from sharequeue_pipeline.sink.attempts import Attempt, Chunk, produce
from sharequeue_pipeline.sink.rows import Rows
from sharequeue_pipeline.sink.rows import chunks as json_chunks
from sharequeue_pipeline.sink.transactions import MAX_TASKS, WriteTransaction, begin, is_committed
from sharequeue_pipeline.worker_process import spare_modules

log = logging.getLogger(__name__)


@dataclass
class Written(WriterCommitMessage):
    """The number of records that one task has sent.

    `known`: how many of the records were in the log when the write began, under the same keys, or were committed
    before. `others`: records of other attempts of the task that are not among its rows, or no longer in the log.
    `transaction_id`, `part`, `label`: in a transaction, what to commit and what to note.
    `done`: it was committed before.
    """

    records: int
    known: int
    others: int = 0
    transaction_id: str | None = None
    part: str | None = None
    label: str | None = None
    done: bool = False


class Writer:
    """The common part of both writers. Spark pickles a copy for each task."""

    def __init__(self, options: SinkOptions, schema: spark.StructType) -> None:
        Rows(options, schema)  # checks the columns before any task runs
        self.options = options
        self._schema = schema
        self._begun: dict[int, int] = {}
        """The log ends of the topic before the write."""
        self.transaction: WriteTransaction | None = None
        self._arrow = columns.fits(options, schema)
        """Whether the tasks send Arrow streams."""
        self._prepared = False
        self._fault: str | None = None
        """Why the write cannot begin. Its tasks raise it: of an error in `__getstate__` Spark would hide the text."""

    def transactional_id(self) -> str | None:
        """The transactional id. None: it has none."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        """Called when Spark sends the writer to its tasks, once for each micro-batch: then the write begins.

        The constructor of a stream's writer is too early: Spark makes a writer to end a micro-batch, too.
        """
        if not self._prepared:
            self._prepared = True
            try:
                self.prepare()
            except PipelineError as fault:
                self._fault = str(fault)
        return self.__dict__.copy()

    def prepare(self) -> None:
        if self.options.transactional:
            name = self.transactional_id()
            self.transaction = begin(self.options, name)
            if name is not None:
                driver_notes.leave(name, self.transaction.transaction_id)

    def learn_ends(self) -> None:
        """Learn the log ends of the topic. Raises: PipelineError: there is no such topic, or no gateway."""
        if self.options.topic is not None:
            with GatewayClient(self.options.gateway) as gateway:
                described = gateway.describe(self.options.topic, first_try=True)
            self._begun = {entry.partition: entry.log_end_offset for entry in described.partitions}

    def send(self, batches: Iterator[Any], write_id: str, label: str | None) -> Written:
        """Send a task's records. `label`: what the commit of a transaction notes."""
        if self._fault is not None:
            raise PipelineError(self._fault)
        spare_modules()
        if self.transaction is not None:
            return self._send_part(self.transaction, batches, label)
        context = TaskContext.get()
        assert context is not None
        prefix = f"{write_id}:{context.partitionId()}"
        with GatewayClient(self.options.gateway) as gateway:
            attempt = Attempt(gateway, prefix, self._begun, self._schema.names)
            for _ in in_order(partial(attempt.write, chunk) for chunk in self._chunks(batches)):
                pass
        return Written(attempt.records, attempt.known, others=attempt.others)

    def _chunks(self, batches: Iterator[Any]) -> Iterator[Chunk]:
        """The requests of a task."""
        if self._arrow:
            return columns.chunks(batches, self.options)
        rows = Rows(self.options, self._schema)
        return json_chunks((pair for batch in batches for pair in rows.records(batch)), self.options)

    def _send_part(self, whole: WriteTransaction, batches: Iterator[Any], label: str | None) -> Written:
        """Send a task's records in a part of the transaction,
        which counts if Spark names this attempt to the driver."""
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() >= MAX_TASKS:
            raise PipelineError(
                f"transactional=true commits at most {MAX_TASKS} tasks at once, and this write has more: write fewer partitions (coalesce, spark.sql.shuffle.partitions)"
            )
        if is_committed(whole, label):
            known = sum(batch.num_rows for batch in batches)  # all of them: stateful operators end with their input
            return Written(known, known, transaction_id=whole.transaction_id, label=label, done=True)
        part: str | None = None
        records = 0
        with GatewayClient(self.options.gateway) as gateway:

            def send(chunk: Chunk, number: int) -> int:
                nonlocal part
                part = part or gateway.begin_part(whole.transaction_id)
                produce(gateway, chunk, f"{part}:{number}", part)
                return chunk.size

            jobs = (partial(send, chunk, number) for number, chunk in enumerate(self._chunks(batches)))
            try:
                for size in in_order(jobs):
                    records += size
            except BaseException:
                if part is not None:
                    with suppress(PipelineError):  # it ends with the whole
                        gateway.abort_transaction(part)
                raise
        return Written(records, 0, transaction_id=whole.transaction_id, part=part, label=label)

    def end(
        self,
        messages: Sequence[WriterCommitMessage | None],
        begun: str | None,
        settles: Mapping[str, MemberAcknowledgements] | None = None,
    ) -> None:
        """Commit the parts of the attempts that Spark names, and settle records with them.

        `begun`: the transaction, if no task names it. `settles`: by member; an empty note tells it that they are.
        """
        written = [message for message in messages if isinstance(message, Written)]
        transaction_id = written[0].transaction_id if written else begun
        if transaction_id is None:
            return
        commits, settles = bool(written) and not written[0].done, settles or {}
        with GatewayClient(self.options.gateway) as gateway:
            if commits:
                parts = [message.part for message in written if message.part is not None]
                gateway.commit_transaction(transaction_id, parts, written[0].label, settles.values())
            else:
                gateway.abort_transaction(transaction_id)
        for member_id in settles:
            driver_notes.leave(member_id, "") if commits else driver_notes.remove(member_id)

    def report_others(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log how many records of earlier attempts may be in the topic besides those that count."""
        others = sum(message.others for message in messages if isinstance(message, Written))
        if others:
            log.warning(
                "earlier attempts of this write had appended %d records to %s that were not among its rows, or that could "
                "not be read again: they may be there twice; transactional=true prevents that",
                others,
                self.options.topic or "its topics",
            )

    def give_up(self, messages: Sequence[WriterCommitMessage | None], begun: str | None) -> None:
        """Abort the transaction of a write that failed. Without an answer the next begin aborts it,
        or its time passes."""
        transaction_id = next((each.transaction_id for each in messages if isinstance(each, Written)), begun)
        if transaction_id is not None:
            with suppress(PipelineError), GatewayClient(self.options.gateway) as gateway:
                gateway.abort_transaction(transaction_id)
