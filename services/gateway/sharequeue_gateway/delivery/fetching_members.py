"""The members that fetched or acknowledged at this gateway lately, or read a stream: a pool of workers is seen, whether
it joined its group or not. A long job is seen by its renewals, which are acknowledgements.

Noting a call costs one entry of a dictionary, under a time that is at most a second old. A member without a name is
not noted: each of its fetches has another one.
"""

import time
from collections.abc import Collection, Iterable, Mapping
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
    """By group and member. `seen`: `now_s` at the time of the last call. `hosts`: where the last fetch or stream
    came from. A call writes its entries itself."""

    def __init__(self) -> None:
        self.seen: Final[dict[Name, float]] = {}
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
            self._forget([name for name, seen_s in self.seen.items() if seen_s < self.now_s - SEEN_S])
            if len(self.seen) > MOST_SEEN:  # names that are new with each fetch: nobody reads so many
                self._forget(list(self.seen))

    def _forget(self, names: Iterable[Name]) -> None:
        for name in names:
            del self.seen[name]
            self.hosts.pop(name, None)

    def forget_group(self, group_id: str) -> None:
        self._forget([name for name in self.seen if name[0] == group_id])

    def count(self) -> Mapping[str, int]:
        """By group, how many members were seen in the last minute."""
        return {group_id: len(members) for group_id, members in self.numbers().items()}

    def numbers(self) -> dict[str, list[int]]:
        """By group, a number of each member that was seen in the last minute: the same one at each gateway."""
        found: dict[str, list[int]] = {}
        for (group_id, member_id), seen_s in self.seen.items():
            if seen_s >= self.now_s - SEEN_S:
                found.setdefault(group_id, []).append(crc32(member_id.encode()))
        return found

    def of_groups(self, group_ids: Collection[str]) -> dict[str, list[FetchingMember]]:
        """By group, the members that were seen in the last minute: at most 1,000, those that called last first."""
        found: dict[str, list[FetchingMember]] = {group_id: [] for group_id in group_ids}
        for name, seen_s in self.seen.items():
            if name[0] in found and seen_s >= self.now_s - SEEN_S:
                host = self.hosts.get(name)
                ago_s = max(0, int(self.now_s - seen_s))
                member = FetchingMember(
                    member_id=name[1], seconds_ago=ago_s, client_host=None if host is None else host[0]
                )
                found[name[0]].append(member)
        return {group_id: latest(members) for group_id, members in found.items()}


def latest(members: Iterable[FetchingMember]) -> list[FetchingMember]:
    """The members that called last, each once."""
    found: dict[str, FetchingMember] = {}
    for member in sorted(
        members, key=lambda member: (member.seconds_ago, member.client_host is None, member.member_id)
    ):
        found.setdefault(member.member_id, member)
    return [*islice(found.values(), MAX_FETCHING_MEMBERS)]
