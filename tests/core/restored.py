"""A share-partition that is restored from the batches and annotations of its state, in one page."""

from collections.abc import Sequence

from sharequeue_gateway.share_partition.machine import Loaded, RestoredLock, SharePartition
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_share_coordinator.share_state.batch_list import batch_list
from sharequeue_share_coordinator.share_state.columns import page_from

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import StateAnnotation, StateBatch


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
    page, _ = page_from(batch_list(state_batches, annotations), 0, 1 << 40)
    for _ in Restoring(machine, locks, now_ms).add_page(page, last=True):
        pass
    return machine.loaded()
