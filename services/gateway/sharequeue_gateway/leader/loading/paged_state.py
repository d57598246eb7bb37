"""Reads the state of a share-partition page by page, and restores the share-partition from it.

The first page records the leader epoch, so no earlier leader writes behind it. If a page names another version than the
first one did, the reading begins again: the share coordinator has stored a snapshot in between, for example.

    page 1 ──▶ page 2 ──▶ … ──▶ last page ──▶ restored, in slices
      ▲             │ another version
      └─────────────┘ at most MOST_BEGUN times
"""

from collections.abc import Sequence
from typing import Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import CoordinatorLoadInProgress
from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.state import StateBatch
from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from sharequeue.slices import Slices
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.share_partition.backoff import jitter_seed
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.restoring import Restoring
from sharequeue_gateway.share_partition.runs import DeadLetter

MOST_BEGUN: Final = 5


async def restored_from_pages(
    share_coordinator: ShareStateClient,
    key: SharePartitionKey,
    first_page: PartitionStateResult,
    config: ShareGroupConfig,
    *,
    start_offset: int,
    leader_epoch: int,
    locks: Sequence[RestoredLock],
    now_ms: int,
    slices: Slices,
) -> tuple[SharePartition, list[DeadLetter]]:
    """Rebuild the machine of a share-partition; other tasks run between two slices.

    Returns: it, and the dead letters whose writing must be resumed.
    Raises: ApiError: a page cannot be read, the state contradicts itself, or it changes all the time.
    """
    batches, texts = await _whole(share_coordinator, key, first_page, leader_epoch)
    machine = SharePartition(config, start_offset, first_page.state_epoch or 0, leader_epoch, jitter_seed(key))
    machine.removed_unread = first_page.removed_unread
    await slices.pause()
    for _ in Restoring(machine, texts, now_ms).restore(batches, locks):
        if slices.over():
            await slices.pause()
    await slices.pause()
    return machine, machine.loaded()


async def _whole(
    share_coordinator: ShareStateClient, key: SharePartitionKey, first_page: PartitionStateResult, leader_epoch: int
) -> tuple[Sequence[StateBatch], dict[int, str]]:
    """All batches of a state, and the texts that they name, by their places."""
    page = first_page
    for _ in range(MOST_BEGUN):
        version = page.version
        batches: list[StateBatch] = []
        texts: dict[int, str] = {}
        while page.version == version and page.state_epoch == first_page.state_epoch:
            batches += page.batches
            texts.update(page.texts)
            if page.next_offset is None:
                return batches, texts
            page = await _page(share_coordinator, key, leader_epoch, page.next_offset)
        if page.state_epoch != first_page.state_epoch:
            break
        page = await _page(share_coordinator, key, leader_epoch, 0)
    raise CoordinatorLoadInProgress("the state changes while it is read; try again in a moment")


async def _page(
    share_coordinator: ShareStateClient, key: SharePartitionKey, leader_epoch: int, from_offset: int
) -> PartitionStateResult:
    page = (await share_coordinator.read(key.group_id, [key], leader_epoch, from_offset))[key]
    if page.error_code:
        raise persist_error(page.error_code, page.error_message)
    return page
