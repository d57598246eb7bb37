"""Restores a share-partition from its state, page by page, so that no load needs memory for all of them.

The share coordinator prepares the next page while this one is added. The first page records the leader epoch, so no
earlier leader writes behind it. If a page names another version than the first one did, the reading begins again: the
share coordinator has stored a snapshot in between, for example.

    page 1 ──▶ add 1, read page 2 ──▶ add 2, read page 3 ──▶ … ──▶ add the last page ──▶ loaded
      ▲                  │ another version
      └──────────────────┘ at most MOST_BEGUN times
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import CoordinatorLoadInProgress
from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.slices import Slices
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.share_partition.backoff import jitter_seed
from sharequeue_gateway.share_partition.machine import Loaded, RestoredLock, SharePartition
from sharequeue_gateway.share_partition.restored_page import InvalidState
from sharequeue_gateway.share_partition.restoring import Restoring

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
) -> Loaded:
    """Rebuild the machine of a share-partition; other tasks run between two slices.

    Raises: ApiError: a page cannot be read, the state contradicts itself, or it changes all the time.
    """
    page = first_page
    for _ in range(MOST_BEGUN):
        state_epoch, version = page.state_epoch or 0, page.version
        machine = SharePartition(config, start_offset, state_epoch, leader_epoch, jitter_seed(key))
        restoring = Restoring(machine, locks, now_ms)
        while page.version == version:
            adding = _add(restoring, page, slices)
            if page.next_offset is None:
                await adding
                return machine.loaded()
            reading = _page(share_coordinator, key, leader_epoch, page.next_offset)
            page, _ = await asyncio.gather(reading, adding)
        page = await _page(share_coordinator, key, leader_epoch, 0)
        if page.state_epoch != first_page.state_epoch:
            break
    raise CoordinatorLoadInProgress("the state changes while it is read; try again in a moment")


async def _add(restoring: Restoring, page: PartitionStateResult, slices: Slices) -> None:
    if page.page is None:
        raise InvalidState("the share coordinator answered no page of the state")
    for _ in restoring.add_page(page.page, last=page.next_offset is None):
        if slices.over():
            await slices.pause()


async def _page(
    share_coordinator: ShareStateClient, key: SharePartitionKey, leader_epoch: int, from_offset: int
) -> PartitionStateResult:
    page = (await share_coordinator.read(key.group_id, [key], leader_epoch, from_offset))[key]
    if page.error_code:
        raise persist_error(page.error_code, page.error_message)
    return page
