"""The requests that wait for a commit, and the outcome of a commit: plain data."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.log import RequestContext
from sharequeue_share_coordinator.share_state.rows import KeyState
from sharequeue_share_coordinator.share_state.shard import Decide
from sharequeue_share_coordinator.store import StoredRow


class Operation(NamedTuple):
    """One share-partition of a request. `decide`: decides, given the state. `creates`: it may make the key."""

    key: SharePartitionKey
    decide: Decide
    creates: bool


class WaitingRequest(NamedTuple):
    operations: Sequence[Operation]
    done: "asyncio.Future[list[PartitionStateResult]]"
    context: RequestContext | None


@dataclass(slots=True)
class Decided:
    """The rows that one commit stores, and its answers."""

    results: list[list[PartitionStateResult]] = field(default_factory=list)
    """Of each request, in order."""
    rows: list[StoredRow] = field(default_factory=list)
    states: dict[SharePartitionKey, KeyState | None] = field(default_factory=dict)
    """The states once the rows are durable. Later requests of the same commit are decided on these."""
    epochs: dict[int, int] = field(default_factory=dict)
    """The owner epochs to write under, by shard."""
    deleted: dict[SharePartitionKey, int] = field(default_factory=dict)
    """The keys that get a tombstone, and their ids."""
