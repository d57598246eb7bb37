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
    ),
    *gateway(
        "locks/lock_writer",
        (
            "15 a round trip of several writes is bounded",
            "        if trip and counted > left:",
            "        if trip and counted > 2 * MOST_LOCKS:",
        ),
    ),
    *gateway(
        "leader/led_share_partition",
        (
            "10 a share-partition is not unloaded while a fetch waits",
            "not (self.awaiting() or self.reading or",
            "not (self.reading or",
        ),
    ),
]
