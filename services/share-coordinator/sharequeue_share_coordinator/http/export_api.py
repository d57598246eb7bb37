"""The stored rows of share-partitions, for audits. Every instance reads the same rows, so any of them answers.

Each page is read over a connection of its own, so that neither commits nor housekeeping wait for it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from sharequeue.http.application.endpoint import Call, Handler
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages.audit import ExportStateQuery, ExportStateResponse, StateRow, StoredState
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.share_state.row_format import decode_large, decode_row
from sharequeue_share_coordinator.share_state.rows import LARGE_SNAPSHOT, SNAPSHOT, TOMBSTONE, UPDATE, Row

KINDS: Final = {SNAPSHOT: "snapshot", LARGE_SNAPSHOT: "snapshot", UPDATE: "update", TOMBSTONE: "tombstone"}


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
                rows, parts = await store.export(connection, query)
            finally:
                connection.terminate()
        except FAULTS as fault:
            raise CoordinatorNotAvailable(f"the state cannot be read: {self._health.note(fault).sentence}") from fault
        found = states_of(rows, parts)
        full = len(found) == query.page_size
        return ExportStateResponse(
            share_partitions=list(found.values()), next_after=max(found) if full else msgspec.UNSET
        )


def states_of(rows: Sequence[tuple[Any, ...]], parts: Mapping[int, Sequence[bytes]]) -> dict[int, StoredState]:
    """The share-partitions that `store.export` read, by key id. Of several large snapshots the last one is read."""
    last = {row[0]: row[4] for row in rows if row[5] == LARGE_SNAPSHOT}
    found: dict[int, StoredState] = {}
    for key_id, group_id, topic_id, partition, seq, kind, record in rows:
        state = found.setdefault(
            key_id,
            StoredState(key_id=key_id, group_id=group_id, topic_id=str(topic_id), partition=partition, rows=[]),
        )
        if kind != LARGE_SNAPSHOT:
            if seq is not None:
                state.rows.append(_row(seq, kind, record))
        elif seq == last[key_id]:  # reading each would take 0.1 s beside 100,000 batches
            state.rows[:] = [_large_snapshot(seq, record, parts), *_behind(record, state.rows)]
    return found


def _large_snapshot(seq: int, record: bytes, parts: Mapping[int, Sequence[bytes]]) -> StateRow:
    """The row of a large snapshot with what its parts hold."""
    try:
        row = decode_row(record)
        batches, _ = decode_large(row, parts.get(row.snapshot_id, ()))
    except ValueError as fault:
        return StateRow(seq=seq, kind="snapshot", fault=str(fault))
    snapshot = structs.replace(
        row, kind=SNAPSHOT, state_batches=batches.state_batches(), annotations=batches.annotations()
    )
    return _shown(seq, "snapshot", snapshot)


def _behind(record: bytes, rows: Sequence[StateRow]) -> list[StateRow]:
    """The rows that a large snapshot does not hold, because they were written at the same time as its parts."""
    try:
        covers = decode_row(record).covers
    except ValueError:
        return list(rows)
    return [row for row in rows if row.seq > covers]


def _row(seq: int, kind: int, record: bytes) -> StateRow:
    named = KINDS.get(kind, str(kind))
    try:
        row = decode_row(record)
    except ValueError as fault:
        return StateRow(seq=seq, kind=named, fault=str(fault))
    if row.kind != kind:
        return StateRow(seq=seq, kind=named, fault=f"the record says that its kind is {row.kind}")
    return _shown(seq, named, row)


def _shown(seq: int, kind: str, row: Row) -> StateRow:
    return StateRow(
        seq=seq,
        kind=kind,
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=row.state_batches,
        annotations=row.annotations,
    )
