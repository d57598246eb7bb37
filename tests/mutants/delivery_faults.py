"""Faults of what belongs to one delivery: the length of its lock, the wait after it."""

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
            "                run.lock_expires_at_ms or run.available_at_ms,\n                run.lock_duration_ms,\n",
            "                run.lock_expires_at_ms or run.available_at_ms,\n",
        ),
        (
            "backoff: the next leader learns the wait of an ended lock",
            "                run.lock_expires_at_ms or run.available_at_ms,\n",
            "                run.lock_expires_at_ms,\n",
        ),
        (
            "backoff: a release with a delay goes by it, and 0 is at once",
            "        if delay_ms is None:\n",
            "        if not delay_ms:\n",
        ),
        (
            "backoff: a lock that ends waits",
            "        run.available_at_ms = self.retry_at_ms(run, ended_at_ms, now_ms)\n        return self.offer(run)\n",
            "        return self.offer(run)\n",
        ),
        (
            "backoff: the wait of a lock counts from its deadline",
            "        ended_at_ms = run.lock_expires_at_ms\n        run.unlock()\n        state",
            "        ended_at_ms = now_ms\n        run.unlock()\n        state",
        ),
        (
            "backoff: at the limit nothing waits",
            "            if target is AVAILABLE:\n                part.available_at_ms",
            "            if True:\n                part.available_at_ms",
        ),
    ),
    *gateway(
        "share_partition/transitions",
        (
            "backoff: a lock that ended while its write failed waits",
            "                run.available_at_ms = self.retry_at_ms(run, ended_at_ms, now_ms)\n",
            "",
        ),
        (
            "backoff: that wait counts from the deadline too",
            "            ended_at_ms = run.lock_expires_at_ms\n",
            "            ended_at_ms = now_ms\n",
        ),
    ),
    *gateway(
        "share_partition/window",
        (
            "backoff: a delayed record is not offered",
            "            self.time_lock(run.available_at_ms, run.first, run.last)\n            return",
            "            self.mark_available(run.first)\n            return",
        ),
        (
            "10 the records of an ended lock wait",
            "        self.waiting_count += run.size\n        if run.available_at_ms:",
            "        if run.available_at_ms:",
        ),
        (
            "backoff: a wait that is over is none",
            "        return at_ms if at_ms > now_ms else 0\n",
            "        return at_ms\n",
        ),
    ),
    *gateway(
        "share_partition/backoff",
        (
            "backoff: the attempt chooses the wait",
            "    wait_ms = waits[min(max(attempt, 1), len(waits)) - 1]\n",
            "    wait_ms = waits[min(attempt, len(waits) - 1)]\n",
        ),
        (
            "backoff: jitter is a hash of the batch and the attempt",
            '    chance = zlib.crc32(f"{batch_first}/{attempt}".encode(), seed)\n',
            '    chance = zlib.crc32(f"{batch_first}".encode(), seed)\n',
        ),
        (
            "backoff: jitter is a hash of the share-partition",
            '    chance = zlib.crc32(f"{batch_first}/{attempt}".encode(), seed)\n',
            '    chance = zlib.crc32(f"{batch_first}/{attempt}".encode())\n',
        ),
        (
            "backoff: times are rounded up",
            "-(-(ended_at_ms + min(wait_ms, MAX_DELAY_MS)) // STEP_MS) * STEP_MS",
            "(ended_at_ms + min(wait_ms, MAX_DELAY_MS)) // STEP_MS * STEP_MS",
        ),
        (
            "backoff: no wait is above 12 hours",
            "min(wait_ms, MAX_DELAY_MS)",
            "wait_ms",
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
        (
            "backoff: a restored lock past its deadline waits from there",
            "window.retry_at_ms(run, lock.deadline_ms, now_ms)",
            "window.retry_at_ms(run, now_ms, now_ms)",
        ),
        (
            "backoff: an ended lock is not held again",
            "now_ms + lock_duration_ms)) if lock.member_id else now_ms\n",
            "now_ms + lock_duration_ms))\n",
        ),
    ),
]
