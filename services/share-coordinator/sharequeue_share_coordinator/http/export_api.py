"""The stored rows of share-partitions, for audits. Every instance reads the same rows, so any of them answers.

Each page is read over a connection of its own, so that neither commits nor housekeeping wait for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from sharequeue.http.application.endpoint import Call, Handler
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages.audit import (
    ExportStateQuery,
    ExportStateResponse,
    StateRow,
    StoredBatch,
    StoredState,
)
from sharequeue.protocol.state import NOTHING, StateBatch
from sharequeue.protocol.types import GivenReason, Reason
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.share_state.rows import PART, SNAPSHOT, TOMBSTONE, UPDATE
from sharequeue_share_coordinator.store import LoadedRow

KINDS: Final = {SNAPSHOT: "snapshot", PART: "snapshot", UPDATE: "update", TOMBSTONE: "tombstone"}


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
        found = states_of(rows)
        full = len(found) == query.page_size
        return ExportStateResponse(
            share_partitions=list(found.values()), next_after=max(found) if full else msgspec.UNSET
        )


def states_of(rows: Sequence[tuple[Any, ...]]) -> dict[int, StoredState]:
    """The share-partitions that `store.export` read, by key id."""
    found: dict[int, StoredState] = {}
    texts: list[str] = []
    for key_id, group_id, topic_id, partition, seq, kind, record in rows:
        if key_id not in found:
            texts = []
            found[key_id] = StoredState(
                key_id=key_id, group_id=group_id, topic_id=str(topic_id), partition=partition, rows=[]
            )
        if seq is None:
            continue
        shown = _shown(LoadedRow(seq, kind, record), texts)
        of_key = found[key_id].rows
        if kind != PART or not of_key:
            of_key.append(shown)
        elif shown.fault is not msgspec.UNSET:
            of_key[-1] = StateRow(seq=of_key[-1].seq, kind="snapshot", fault=shown.fault)
        else:
            of_key[-1].state_batches.extend(shown.state_batches)
    return found


def _shown(stored: LoadedRow, texts: list[str]) -> StateRow:
    """A row for an audit. `texts`: the table of the state before this row; it becomes the one behind it."""
    kind = KINDS.get(stored.kind, str(stored.kind))
    try:
        row = store.decoded(stored)
    except store.UnreadableRow as fault:
        return StateRow(seq=stored.seq, kind=kind, fault=str(fault))
    if row.kind == SNAPSHOT:
        texts.clear()
    texts += row.texts
    return StateRow(
        seq=stored.seq,
        kind=kind,
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=[_batch(batch, texts) for batch in row.batches],
    )


def _batch(batch: StateBatch, texts: Sequence[str]) -> StoredBatch:
    note = batch.note or NOTHING
    return StoredBatch(
        batch.first_offset,
        batch.last_offset,
        batch.delivery_state,
        batch.delivery_count,
        note.available_at_ms or None,
        None if note.reason is None else texts[note.reason.text],
        None if note.reason is None else note.reason.at_ms or None,
        note.forgiven,
        [GivenReason(Reason(texts[given.text]), given.at_ms) for given in note.earlier],
        note.transaction_id,
    )
