"""A share-partition that is restored from the batches and annotations of its state."""

from collections.abc import Sequence
from typing import NamedTuple

from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_gateway.share_partition.runs import DeadLetter

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import RestoredLock
from tests.core.states import StateAnnotation, stated


class Loaded(NamedTuple):
    """A loaded share-partition, and the dead letters whose writing it resumes."""

    share_partition: SharePartition
    dead_letters: Sequence[DeadLetter]


def load(
    config: ShareGroupConfig,
    *,
    start_offset: int = 0,
    state_batches: Sequence[StateBatch] = (),
    annotations: Sequence[StateAnnotation] = (),
    locks: Sequence[RestoredLock] = (),
    now_ms: int,
    state_epoch: int = 1,
    leader_epoch: int = 1,
    jitter_seed: int = 0,
) -> Loaded:
    """Restore it as a gateway does. Raises: InvalidState: a batch lies below the start offset."""
    machine = SharePartition(config, start_offset, state_epoch, leader_epoch, jitter_seed)
    state = stated(state_batches, annotations)
    for _ in Restoring(machine, dict(enumerate(state.texts)), now_ms).restore(state.batches, locks):
        pass
    return Loaded(machine, machine.loaded())
