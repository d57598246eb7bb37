"""Faults of the names in Redis, of the size of its calls, and of the rule when a share-partition is unloaded."""

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
        "locks/lock_writer",
        (
            "15 a round trip of several writes is bounded",
            "        if fields > left and trip:",
            "        if fields > 2 * MOST_FIELDS:",
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
