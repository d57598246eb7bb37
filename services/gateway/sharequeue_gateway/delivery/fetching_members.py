"""The members that fetched or acknowledged at this gateway lately, or read a stream: a pool of workers is seen, whether
it joined its group or not. A long job is seen by its renewals, which are acknowledgements.

Noting a call costs one entry of a dictionary, under a time that is at most a second old. A member without a name is
not noted: each of its fetches has another one.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final
from zlib import crc32

from sharequeue.protocol.messages.groups import MAX_FETCHING_MEMBERS, FetchingMember
from sharequeue.repeats import Every

SEEN_S: Final = 60.0
TICK_S: Final = 1.0
TICKS_PER_SWEEP: Final = 10
MOST_SEEN: Final = 50_000

Name = tuple[str, str]
"""A group and a member of it."""


class FetchingMembers:
    """`seen`: by group and member, `now_s` at the time of the last call. `hosts`: where the last fetch or stream came
    from. A call writes its entries itself."""

    def __init__(self) -> None:
        self.seen: Final[defaultdict[str, dict[str, float]]] = defaultdict(dict)
        self.hosts: Final[dict[Name, tuple[str, int] | None]] = {}
        self.now_s = time.monotonic()

    async def run(self) -> None:
        """Keep the time, and forget members that were silent for a minute. Runs until it is cancelled."""
        tick = 0
        async for _ in Every(TICK_S):
            self.now_s = time.monotonic()
            tick = (tick + 1) % TICKS_PER_SWEEP
            if tick:
                continue
            least_s = self.now_s - SEEN_S
            if sum(map(len, self.seen.values())) > MOST_SEEN:
                least_s = self.now_s + TICK_S  # names that are new with each fetch: nobody reads so many
            for group_id, members in list(self.seen.items()):
                self._forget(group_id, [member_id for member_id, seen_s in members.items() if seen_s < least_s])

    def _forget(self, group_id: str, member_ids: Iterable[str]) -> None:
        members = self.seen[group_id]
        for member_id in member_ids:
            del members[member_id]
            self.hosts.pop((group_id, member_id), None)
        if not members:
            del self.seen[group_id]

    def forget_group(self, group_id: str) -> None:
        self._forget(group_id, list(self.seen[group_id]))

    def numbers(self) -> dict[str, list[int]]:
        """By group, a number of each member that was seen in the last minute: the same one at each gateway."""
        least_s = self.now_s - SEEN_S
        found = {
            group_id: [crc32(member_id.encode()) for member_id, seen_s in members.items() if seen_s >= least_s]
            for group_id, members in self.seen.items()
        }
        return {group_id: numbers for group_id, numbers in found.items() if numbers}

    def of_groups(self, group_ids: Collection[str]) -> dict[str, list[FetchingMember]]:
        """By group, the members that were seen in the last minute: at most 1,000, those that called last first."""
        found = {}
        for group_id in group_ids:
            members = []
            for member_id, seen_s in self.seen.get(group_id, {}).items():
                if seen_s >= self.now_s - SEEN_S:
                    host = self.hosts.get((group_id, member_id))
                    ago_s, client_host = max(0, int(self.now_s - seen_s)), None if host is None else host[0]
                    members.append(FetchingMember(member_id=member_id, seconds_ago=ago_s, client_host=client_host))
            found[group_id] = latest(members)
        return found


def latest(members: Iterable[FetchingMember]) -> list[FetchingMember]:
    """The members that called last, each once."""
    found: dict[str, FetchingMember] = {}
    for member in sorted(
        members, key=lambda member: (member.seconds_ago, member.client_host is None, member.member_id)
    ):
        found.setdefault(member.member_id, member)
    return [*islice(found.values(), MAX_FETCHING_MEMBERS)]
