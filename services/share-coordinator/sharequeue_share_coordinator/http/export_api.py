"""The stored rows of share-partitions, for audits. Every instance reads the same rows, so any of them answers.

Each page is read over a connection of its own, so that neither commits nor housekeeping wait for it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from sharequeue.http.endpoint import Call, Handler
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages.audit import ExportStateQuery, ExportStateResponse, StateRow, StoredState
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, TOMBSTONE, UPDATE

KINDS: Final = {SNAPSHOT: "snapshot", UPDATE: "update", TOMBSTONE: "tombstone"}


class ExportApi:
    """The handler of exportShareGroupState. `connect`: to the database."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], health: PostgresHealth) -> None:
        self._connect = connect
        self._health = health

    def calls(self) -> list[tuple[Api, Handler]]:
        return [(apis.EXPORT_STATE, self.export)]

    async def export(self, call: Call) -> ExportStateResponse:
        query: ExportStateQuery = call.request
        try:
            connection = await self._connect()
            try:
                rows = await store.export(connection, query)
            finally:
                connection.terminate()
        except FAULTS as fault:
            raise CoordinatorNotAvailable(f"the state cannot be read: {self._health.note(fault).sentence}") from fault
        found: dict[int, StoredState] = {}
        for key_id, group_id, topic_id, partition, seq, kind, record in rows:
            state = found.setdefault(
                key_id,
                StoredState(key_id=key_id, group_id=group_id, topic_id=str(topic_id), partition=partition, rows=[]),
            )
            if seq is not None:
                state.rows.append(_row(seq, kind, record))
        full = len(found) == query.page_size
        return ExportStateResponse(
            share_partitions=list(found.values()), next_after=max(found) if full else msgspec.UNSET
        )


def _row(seq: int, kind: int, record: bytes) -> StateRow:
    named = KINDS.get(kind, str(kind))
    try:
        row = store.decode_row(record)
    except msgspec.MsgspecError as fault:
        return StateRow(seq=seq, kind=named, fault=str(fault))
    if row.kind != kind:
        return StateRow(seq=seq, kind=named, fault=f"the record says that its kind is {row.kind}")
    return StateRow(
        seq=seq,
        kind=named,
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=row.state_batches,
        annotations=row.annotations,
    )
