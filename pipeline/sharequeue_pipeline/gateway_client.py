"""Calls to the gateway for the pipeline: without asyncio, with retries, and with faults as one line of text.

Each thread needs a client of its own, because a client runs its event loop in the calling thread. Every call can be
repeated after its answer was lost: a produce request has a key. `group_client` has the calls of a group's member.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, Self, TypeVar

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.apis import ARROW_STREAM, RECORD_RUNS
from sharequeue.protocol.messages.compaction import ListRecordBatchesQuery, RecordBatchList, RecordBatchListing
from sharequeue.protocol.messages.fields import IsolationLevel
from sharequeue.protocol.messages.records import MAX_RECORDS_READ, ReadRecordsQuery
from sharequeue.protocol.messages.topics import ListTopicsQuery, TopicDescription
from sharequeue.protocol.messages.transactions import (
    BeginTransactionRequest,
    BegunTransaction,
    CommitTransactionRequest,
    EndTransactionRequest,
    MemberAcknowledgements,
)
from sharequeue_http.calling.caller import Client, decoded
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError
from sharequeue_pipeline.errors import PipelineError, data_loss, refused
from sharequeue_pipeline.options import GatewayOptions
from sharequeue_pipeline.ranges import Range

log = logging.getLogger(__name__)

T = TypeVar("T")

PRODUCE: Final = replace(apis.PRODUCE_RECORDS, idempotent=True)
PRODUCE_ARROW: Final = replace(apis.PRODUCE_ARROW, idempotent=True)
BEGIN: Final = replace(apis.BEGIN_TRANSACTION, idempotent=True)
"""Without an epoch a second begin ends the first, whose answer was lost; a lost part ends with its whole."""
ACCEPT: Final = {"Accept": RECORD_RUNS}
READ_BYTES: Final = 16 * 1024 * 1024
"""Of one call, after decompression."""
LISTED_AT_ONCE: Final = 10_000
"""Stored batches."""
KEY_RETENTION_MS: Final = 7 * 86_400_000
"""Seven days: a query may be restarted days later."""
FIRST_TRY_S: Final = 10.0
"""How long a first call tries to reach the gateway, before it reports that there is none."""


class GatewayClient:
    """A client of one gateway.

    Every method raises PipelineError if the gateway refuses the call, or is out of reach for longer than `timeout_ms`.
    """

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        try:
            self._client = Client(options.url, login=options.login, ca=options.ca, deadline_s=options.timeout_ms / 1000)
        except ValueError as fault:
            raise PipelineError(str(fault)) from None
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._client.close())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait_for(self, answer: Coroutine[Any, Any, T]) -> T:
        """Run a call of the client. Raises: PipelineError: its fault, as one line."""
        try:
            return self._loop.run_until_complete(answer)
        except ApiError as error:
            raise refused(error, self._options.url) from None

    def _exchange(
        self,
        api: Api,
        request: Any = None,
        headers: dict[str, str] | None = None,
        *,
        wait_s: float = 0.0,
        first_try: bool = False,
        **path: Any,
    ) -> bytes:
        """Make a call. Returns: the undecoded answer.

        `wait_s`: how long the gateway may wait before it answers. `first_try`: give up after `FIRST_TRY_S` if there is
        no gateway.
        """
        deadline_s = self._options.timeout_ms / 1000 + wait_s
        if first_try:
            deadline_s = min(deadline_s, FIRST_TRY_S)
        return self._wait_for(self._client.relay(api, request, path=path, headers=headers, deadline_s=deadline_s))[0]

    def ask(self, api: Api, request: Any = None, **options: Any) -> Any:
        """Make a call; the options are those of `_exchange` and its path. Returns: the decoded response."""
        try:
            return decoded(api, self._exchange(api, request, **options), self._options.url)
        except ApiError as error:
            raise refused(error, self._options.url) from None

    def list_pages(self, api: Api, query: Any, **options: Any) -> Iterator[Any]:
        """Make a list call, page after page, as `ask`. `query`: of the first page. Returns: the pages."""
        while True:
            page = self.ask(api, query, **options)
            yield page
            if page.next_page_token is None:
                return
            query = msgspec.structs.replace(query, page_token=page.next_page_token)

    def describe(self, topic: str, *, first_try: bool = False) -> TopicDescription:
        """A topic's partitions and offsets. `first_try`: give up after `FIRST_TRY_S` if there is no gateway."""
        described = self.find(topic, first_try=first_try)
        if described is None:
            raise PipelineError(f"there is no topic {topic!r} at {self._options.url}")
        return described

    def find(self, topic: str, *, first_try: bool = False) -> TopicDescription | None:
        """The same. Returns: None if there is no such topic."""
        try:
            described: TopicDescription = self.ask(apis.DESCRIBE_TOPIC, topic=topic, first_try=first_try)
        except PipelineError as fault:
            if fault.code == "UNKNOWN_TOPIC_OR_PARTITION":
                return None
            raise
        return described

    def topic_names(self, *, first_try: bool = False) -> Iterator[str]:
        """The names of all topics. `first_try`: as for `describe`."""
        for page in self.list_pages(apis.LIST_TOPICS, ListTopicsQuery(), first_try=first_try):
            yield from (topic.name for topic in page.topics)

    def read(self, entry: Range, isolation: IsolationLevel, *, skip_deleted: bool = True) -> Iterator[Any]:
        """The records of a range, as record batches of `sharequeue.arrow_records`; none is empty.

        `skip_deleted`: skip offsets that retention or delete-records has removed; otherwise they are a fault.
        """
        for page in self.pages(entry, isolation, skip_deleted=skip_deleted):
            yield from page

    def pages(self, entry: Range, isolation: IsolationLevel, *, skip_deleted: bool = True) -> Iterator[Iterator[Any]]:
        """The same, answer by answer. Most of an answer is decoded when its records are asked for, by that thread."""
        from sharequeue_pipeline import record_answers  # noqa: PLC0415 - heavy, and not needed where nothing is read

        offset = entry.first_offset
        while offset <= entry.last_offset:
            query = ReadRecordsQuery(
                offset=offset,
                max_records=min(MAX_RECORDS_READ, entry.last_offset - offset + 1),
                max_bytes=READ_BYTES,
                isolation_level=isolation,
                topic_id=entry.topic_id or None,
            )
            try:
                body = self._exchange(apis.READ_RECORDS, query, ACCEPT, topic=entry.topic, partition=entry.partition)
            except PipelineError as fault:
                start = self._log_start(entry) if fault.code == "OFFSET_OUT_OF_RANGE" else -1
                if start <= offset:
                    raise
                if not skip_deleted:
                    raise data_loss(entry.topic, entry.partition, offset, min(start - 1, entry.last_offset)) from None
                log.warning(
                    "%s-%d: skipped the offsets %d to %d, which were deleted",
                    entry.topic,
                    entry.partition,
                    offset,
                    start - 1,
                )
                offset = start
                continue
            with _damaged(entry, offset):
                batches, following = record_answers.of_runs(body)
            yield _page(entry, offset, batches)
            if following <= offset:
                raise PipelineError(
                    f"{entry.topic}-{entry.partition} ends at offset {offset}, before {entry.last_offset}"
                )
            offset = following

    def _log_start(self, entry: Range) -> int:
        return self.describe(entry.topic).partitions[entry.partition].log_start_offset

    def batches(self, topic: str, partition: int, first_offset: int, end_offset: int) -> Iterator[RecordBatchListing]:
        """The stored batches from the one with `first_offset` to the last one that begins below `end_offset`."""
        while first_offset < end_offset:
            query = ListRecordBatchesQuery(offset=first_offset, max_batches=LISTED_AT_ONCE)
            page: RecordBatchList = self.ask(apis.LIST_RECORD_BATCHES, query, topic=topic, partition=partition)
            for batch in page.batches:
                if batch.base_offset >= end_offset:
                    return
                yield batch
            if page.next_offset <= first_offset:
                return
            first_offset = page.next_offset

    def produce(
        self, topic: str, body: bytes, idempotency_key: str, transaction_id: str | None = None, *, arrow: bool
    ) -> bytes:
        """Append the records of a request body, once. It waits and repeats while the gateway is busy or away.

        `arrow`: the body is an Arrow stream. Returns: the answer. If the key is known, it has the offsets of the first
        time. Raises: KeyUsed: the key was used for another body.
        """
        headers = {"Idempotency-Key": idempotency_key}
        if transaction_id is None:
            headers["Idempotency-Retention-Ms"] = str(KEY_RETENTION_MS)
        else:
            headers["Transaction-Id"] = transaction_id
        if arrow:
            headers["Content-Type"] = ARROW_STREAM
        return self._exchange(PRODUCE_ARROW if arrow else PRODUCE, body, headers, topic=topic)

    def begin_transaction(self, transactional_id: str | None, timeout_ms: int) -> BegunTransaction:
        """Begin a transaction. A producer that had the transactional id before is fenced."""
        request = BeginTransactionRequest(transactional_id=transactional_id, timeout_ms=timeout_ms)
        begun: BegunTransaction = self.ask(BEGIN, request)
        return begun

    def begin_part(self, transaction_id: str) -> str:
        """Begin a part of an open transaction. Returns: its id."""
        begun: BegunTransaction = self.ask(BEGIN, BeginTransactionRequest(part_of=transaction_id))
        return begun.transaction_id

    def commit_transaction(
        self, transaction_id: str, parts: list[str], note: str | None, settles: Iterable[MemberAcknowledgements] = ()
    ) -> None:
        """Commit a transaction with those of its parts that count, and settle records with it."""
        request = CommitTransactionRequest(note=note, parts=parts, acknowledgements=list(settles))
        self.ask(apis.COMMIT_TRANSACTION, request, transaction=transaction_id)

    def abort_transaction(self, transaction_id: str) -> None:
        """Abort a transaction or a part."""
        self.ask(apis.ABORT_TRANSACTION, EndTransactionRequest(), transaction=transaction_id)


@contextmanager
def _damaged(entry: Range, offset: int) -> Iterator[None]:
    """Decoding an answer. Raises: PipelineError: it is damaged."""
    try:
        yield
    except (ValueError, IndexError, msgspec.MsgspecError) as fault:
        raise PipelineError(
            f"{entry.topic}-{entry.partition}: the gateway's answer from offset {offset} on is damaged: {fault}"
        ) from None


def _page(entry: Range, offset: int, batches: Iterable[Any]) -> Iterator[Any]:
    """The record batches of an answer from an offset on, without records behind the range."""
    from sharequeue_pipeline import record_answers  # noqa: PLC0415 - heavy

    with _damaged(entry, offset):
        for batch in batches:
            yield from record_answers.up_to(entry.last_offset, batch)
