"""Faults of what belongs to one delivery: the length of its lock."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/acquisition",
        (
            "a fetch brings the length of its locks",
            "        self._lock_duration_ms = lock_duration_ms or window.config.record_lock_duration_ms\n",
            "        self._lock_duration_ms = window.config.record_lock_duration_ms\n",
        ),
        (
            "a redelivery has the length of its own fetch",
            "        run.lock_duration_ms = self._lock_duration_ms\n        run.reason = None\n",
            "        run.lock_duration_ms = run.lock_duration_ms or self._lock_duration_ms\n        run.reason = None\n",
        ),
    ),
    *gateway(
        "share_partition/machine",
        (
            "a renewal keeps the length of the lock",
            "        run.lock_duration_ms = lock_duration_ms or run.lock_duration_ms\n",
            "        run.lock_duration_ms = lock_duration_ms or self.config.record_lock_duration_ms\n",
        ),
        (
            "a renewal may bring another length",
            "        run.lock_duration_ms = lock_duration_ms or run.lock_duration_ms\n",
            "        pass\n",
        ),
        (
            "the next leader learns the length of a lock",
            "                run.lock_expires_at_ms,\n                run.lock_duration_ms,\n",
            "                run.lock_expires_at_ms,\n",
        ),
    ),
    *gateway(
        "share_partition/runs",
        (
            "a split leaves both sides the length of the lock",
            "        right.lock_duration_ms = self.lock_duration_ms\n",
            "",
        ),
    ),
    *gateway(
        "share_partition/restoring",
        (
            "a restored deadline is cut to the length of its own lock",
            "lock_duration_ms = lock.lock_duration_ms or window.config.record_lock_duration_ms",
            "lock_duration_ms = window.config.record_lock_duration_ms",
        ),
        (
            "a restored lock keeps its length",
            "            run.lock_duration_ms = lock_duration_ms\n",
            "            run.lock_duration_ms = window.config.record_lock_duration_ms\n",
        ),
    ),
]
