"""Counts the work of groups now: ready, held, delayed and dying records, and workers.

    the log's readers    records above the floors of a group, the age of the oldest ready one, open dead letters
  − each leader          of these, what is finished, held, delayed or dying in its memory
  = ready                also in share-partitions that no gateway has loaded

A page costs two statements, and one call of each other gateway, however many groups it has.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import FetchingMember, GroupWork
from sharequeue.protocol.messages.leaders import GroupHere, GroupsHereRequest, GroupsHereResponse
from sharequeue.slices import Slices
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.delivery.fetching_members import FetchingMembers, latest
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.record_log import backlog_store
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.record_log.store import Query
from sharequeue_http.application.endpoint import Call

ASK_S: Final = 2.0


@dataclass(eq=False)
class GroupsAtWork:
    """Counts at all gateways, and is the handler of groupsHere. `query`: runs a function with a connection to the
    log."""

    _query: Query
    _cluster: Cluster
    _record_log: RecordLog
    _leader: Leader
    _dead_letters: DeadLetterQueue
    _members: FetchingMembers
    _clock: Clock

    async def of(self, group_ids: Sequence[str]) -> dict[str, tuple[GroupWork, list[FetchingMember]]]:
        """The work and the workers of each group. Raises: StorageError."""
        if not group_ids:
            return {}
        backlogs = await self._query(backlog_store.of_groups, group_ids)
        request = GroupsHereRequest(group_ids=list(group_ids))
        others = [self._cluster.asked(node, apis.GROUPS_HERE, request, ASK_S) for node in self._cluster.others()]
        answers: list[GroupsHereResponse | None] = await asyncio.gather(self._here(group_ids), *others)
        now_ms = self._clock.now_ms()
        found = {}
        for group_id in group_ids:
            at = [here for answer in answers if answer for here in answer.groups if here.group_id == group_id]
            backlog = backlogs[group_id]
            held, delayed, dying, settled = (
                sum(getattr(here, name) for here in at) for name in ("held", "delayed", "dying", "settled")
            )
            workers = latest([member for here in at for member in here.workers])
            work = GroupWork(
                ready=max(backlog.records - settled - held - delayed - dying, 0),
                held=held,
                delayed=delayed,
                dying=dying,
                open_dead_letters=backlog.open_dead_letters,
                workers=len(workers),
                partial=None in answers,
            )
            if work.ready and backlog.oldest_ready_ms is not None:
                work.oldest_ready_age_ms = max(now_ms - backlog.oldest_ready_ms, 0)
            found[group_id] = work, workers
        return found

    async def groups_here(self, call: Call) -> GroupsHereResponse:
        """The work of groups at this gateway. Called by other gateways."""
        request: GroupsHereRequest = call.request
        return await self._here(request.group_ids)

    async def _here(self, group_ids: Sequence[str]) -> GroupsHereResponse:
        workers = self._members.of_groups(group_ids)
        dying: Counter[str] = Counter()
        for pending in self._dead_letters:
            dying[pending.led.key.group_id] += pending.records
        slices = Slices()
        groups = []
        for group_id in group_ids:
            here = GroupHere(group_id=group_id, dying=dying[group_id], workers=workers[group_id])
            for led in self._leader.of_group(group_id):
                if slices.over():
                    await slices.pause()
                machine = led.machine
                log_start = self._record_log.known_log_start((led.key.topic_id, led.key.partition))
                here.settled += max(machine.start_offset - max(led.floor, log_start), 0)
                here.settled += machine.delivery_complete_count
                here.held += machine.held_count
                here.delayed += machine.delayed_count
            here.held = max(here.held - here.dying, 0)
            groups.append(here)
        return GroupsHereResponse(groups=groups)
