"""The stored rows of share-partitions, for audits. Every instance reads the same rows, so any of them answers.

Each page is read over a connection of its own, so that neither commits nor housekeeping wait for it.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.messages.audit import (
    ExportStateQuery,
    ExportStateResponse,
    StateRow,
    StoredBatch,
    StoredState,
)
from sharequeue.protocol.state import NOTHING, StateBatch, unnamed_text
from sharequeue.protocol.types import GivenReason, Reason
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import CoordinatorNotAvailable
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
    for (key_id, group_id, topic_id, partition), of_key in itertools.groupby(rows, key=itemgetter(0, 1, 2, 3)):
        stored = [LoadedRow(seq, kind, record) for *_, seq, kind, record in of_key if seq is not None]
        found[key_id] = StoredState(
            key_id=key_id, group_id=group_id, topic_id=str(topic_id), partition=partition, rows=_shown(stored)
        )
    return found


def _shown(stored: Sequence[LoadedRow]) -> list[StateRow]:
    """The rows of a share-partition for an audit; those that cannot be read say why."""
    shown: list[StateRow] = []
    texts: list[str] = []
    parts = 0
    for place, (seq, kind, _) in enumerate(stored):
        if kind == PART and parts:
            parts -= 1
            continue
        named = KINDS.get(kind, str(kind))
        try:
            row, _ = store.whole_row(stored, place)
        except store.UnreadableRow as fault:
            shown.append(StateRow(seq=seq, kind=named, fault=str(fault)))
            continue
        parts = row.parts
        if row.kind == SNAPSHOT:
            texts = []
        texts += row.texts
        if (unnamed := unnamed_text(row.batches, len(texts))) is not None:
            shown.append(StateRow(seq=seq, kind=named, fault=f"a batch names the text {unnamed} of {len(texts)}"))
            continue
        shown.append(
            StateRow(
                seq=seq,
                kind=named,
                snapshot_epoch=row.snapshot_epoch,
                state_epoch=row.state_epoch,
                leader_epoch=row.leader_epoch,
                start_offset=row.start_offset,
                delivery_complete_count=row.delivery_complete_count,
                state_batches=[_batch(batch, texts) for batch in row.batches],
            )
        )
    return shown


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
