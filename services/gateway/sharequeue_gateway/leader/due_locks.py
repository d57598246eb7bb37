"""Ends due locks and delays in time. A share-partition that nobody has loaded waits for the fetch that loads it."""

from itertools import count
from typing import Final

from sharequeue.repeats import Every
from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.locks.lock_calls import LockWrite

SWEEP_PAUSE_S: Final = 0.1
SWEEPS_PER_LOOK: Final = 10
"""How many sweeps go to one look at the kept locks."""


async def sweep(leader: Leader, kept_locks: KeptLocks) -> None:
    """End due locks. Runs until it is cancelled."""
    sweeps = count(1)
    async for _ in Every(SWEEP_PAUSE_S):
        await leader.expire_all_due()
        if next(sweeps) % SWEEPS_PER_LOOK == 0:
            kept_locks.drop_ended()


def all_locks(leader: Leader, kept_locks: KeptLocks) -> list[LockWrite]:
    """All locks that this gateway knows, to write back when Redis lost them."""
    own = [led for led in leader.all() if led.machine.runs or led.lock_entries]
    return [lock_entries.whole(led) for led in (*own, *kept_locks.for_others())]
