"""Faults of large writes of locks, of loads page by page, and of the rule when a share-partition is unloaded."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "cluster/redis_client",
        (
            "clusters that share a Redis share no lock",
            'f"sharequeue:{self.cluster_id}:locks:',
            'f"sharequeue:locks:',
        ),
        (
            "clusters that share a Redis share no due set",
            'return f"sharequeue:{self.cluster_id}:due"',
            'return "sharequeue:due"',
        ),
    ),
    *gateway(
        "locks/lock_calls",
        (
            "16 what has ended is deleted before the new locks are set",
            """    for start in range(0, len(over), MOST_FIELDS):
        names = [f"{first}-{last}" for first, last in over[start : start + MOST_FIELDS]]
        yield Call([*head, len(names), 0, *names], len(names), place)
    for part in _parts(entries):
        yield Call([*head, 0, 0, *_fields(part)], len(part), place)
""",
            """    for part in _parts(entries):
        yield Call([*head, 0, 0, *_fields(part)], len(part), place)
    for start in range(0, len(over), MOST_FIELDS):
        names = [f"{first}-{last}" for first, last in over[start : start + MOST_FIELDS]]
        yield Call([*head, len(names), 0, *names], len(names), place)
""",
        ),
        (
            "16 all locks take the place of the old ones at once",
            """        yield Call(["HSET", staged, *_fields(part)], len(part), None)
        yield Call(["PEXPIRE", staged, STAGED_TTL_MS], 0, None)
    yield Call([*head, "", len(entries)], 0, place)
""",
            """        yield Call([*head, "", 0, *_fields(part)], len(part), place)
""",
        ),
        (
            "16 what an earlier write staged is not put in place",
            """    yield Call(["UNLINK", staged], 0, None)
""",
            "",
        ),
    ),
    *gateway(
        "locks/lock_writer",
        (
            "15 a round trip has no more fields than one call",
            "            if call.fields > left and trip:",
            "            if call.fields > 2 * MOST_FIELDS:",
        ),
    ),
    *gateway(
        "leader/led_share_partition",
        (
            "10 a share-partition whose delay ends soon stays loaded",
            "return None if deadline_ms is not None and deadline_ms < idle_until_ms else self.used_at_ms",
            "return self.used_at_ms",
        ),
        (
            "10 a share-partition whose delay ends much later is unloaded",
            "return None if deadline_ms is not None and deadline_ms < idle_until_ms else self.used_at_ms",
            "return None if deadline_ms is not None else self.used_at_ms",
        ),
        (
            "10 a share-partition is not unloaded while a fetch waits",
            "if self.waiters or self.reading or",
            "if self.reading or",
        ),
    ),
]
