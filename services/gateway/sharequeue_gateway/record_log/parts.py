"""Names the parts of a record log: partitions (`log.RecordLog`), and what stands beside them. `gateway` chooses one."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import Appends, RecordLog
from sharequeue_gateway.record_log.removing.compacting import Compaction
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.scheduled.schedule_log import ScheduleLog
from sharequeue_gateway.record_log.scheduled.scheduled_log import ScheduledLog
from sharequeue_gateway.record_log.transactions.transactions import PostgresTransactions
from sharequeue_gateway.record_log.unique_log import UniqueLog


class Log(RecordLog, Protocol):
    """A record log and the parts beside it. `kind`: as the setting `record_log` names it.

    `capabilities`: see `sharequeue.protocol.capabilities`. A part that stands for a capability which the log lacks gets
    no call. `questions`: how often a read asked what became of transactions. `stores`: what
    the log needs beside PostgreSQL, by the names of `/readyz`, with what asks it; that raises ApiError.
    """

    @property
    def kind(self) -> str: ...
    @property
    def capabilities(self) -> frozenset[str]: ...
    @property
    def stores(self) -> Mapping[str, Callable[[], Awaitable[None]]]: ...
    @property
    def questions(self) -> int: ...
    @property
    def database(self) -> LogDatabase: ...
    @property
    def readers(self) -> Readers: ...
    @property
    def appender(self) -> Appends: ...
    @property
    def dead_letters(self) -> DeadLetterLog: ...
    @property
    def unique(self) -> UniqueLog: ...
    @property
    def schedules(self) -> ScheduleLog: ...
    @property
    def scheduled(self) -> ScheduledLog: ...
    @property
    def transactions(self) -> PostgresTransactions: ...
    @property
    def compaction(self) -> Compaction: ...

    async def run(self, interest: Callable[[], Iterable[TopicIdPartition]]) -> None:
        """Run the loops of the log. Never returns. `interest`: the partitions that fetches wait for."""
