"""The members that fetched or acknowledged at this gateway lately, or read a stream: a pool of workers is seen, whether
it joined its group or not. A long job is seen by its renewals, which are acknowledgements.

Noting a call costs one entry of a dictionary, under a time that is at most a second old. A member without a name is
not noted: each of its fetches has another one.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from sharequeue.repeats import Every

SEEN_S: Final = 60.0
TICK_S: Final = 1.0
TICKS_PER_SWEEP: Final = 10
MOST_SEEN: Final = 50_000


class FetchingMembers:
    """`seen`: by group and member, `now_s` at the time of its last call. A call writes its entry itself."""

    def __init__(self) -> None:
        self.seen: Final[dict[tuple[str, str], float]] = {}
        self.now_s = time.monotonic()

    async def run(self) -> None:
        """Keep the time, and forget members that were silent for a minute. Runs until it is cancelled."""
        tick = 0
        async for _ in Every(TICK_S):
            self.now_s = time.monotonic()
            tick = (tick + 1) % TICKS_PER_SWEEP
            if tick:
                continue
            for names in [names for names, seen_s in self.seen.items() if seen_s < self.now_s - SEEN_S]:
                del self.seen[names]
            if len(self.seen) > MOST_SEEN:  # names that are new with each fetch: nobody reads so many
                self.seen.clear()

    def forget_group(self, group_id: str) -> None:
        """The group is deleted."""
        for names in [names for names in self.seen if names[0] == group_id]:
            del self.seen[names]

    def count(self) -> Mapping[str, int]:
        """By group, how many members were seen in the last minute."""
        since_s = self.now_s - SEEN_S
        return Counter(group_id for (group_id, _), seen_s in self.seen.items() if seen_s >= since_s)

    def of_group(self, group_id: str) -> dict[str, float]:
        """The members of a group that were seen in the last minute, with the seconds since then."""
        since_s = self.now_s - SEEN_S
        return {
            member_id: max(0.0, self.now_s - seen_s)
            for (of_group, member_id), seen_s in self.seen.items()
            if of_group == group_id and seen_s >= since_s
        }
