"""Faults of what belongs to one delivery: the length of its lock, the wait after it, whether it was begun."""

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
            "        run.lock_duration_ms = self._lock_duration_ms\n        if run.reason",
            "        run.lock_duration_ms = run.lock_duration_ms or self._lock_duration_ms\n        if run.reason",
        ),
        (
            "throttle: the group says whether released records are throttled",
            "return 0 if self._spares_released and run.released else run.attempt",
            "return 0 if run.released else run.attempt",
        ),
        (
            "throttle: released records may be spared",
            "return 0 if self._spares_released and run.released else run.attempt",
            "return run.attempt",
        ),
        (
            "begun: throttled redelivery goes by attempts",
            "return 0 if self._spares_released and run.released else run.attempt",
            "return 0 if self._spares_released and run.released else run.delivery_count",
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
            "                run.lock_duration_ms,\n                run.forgiven - ",
            "                0,\n                run.forgiven - ",
        ),
        (
            "backoff: the next leader learns the wait of an ended lock",
            "                run.lock_expires_at_ms or run.available_at_ms,\n",
            "                run.lock_expires_at_ms,\n",
        ),
        (
            "backoff: a release with a delay goes by it, and 0 is at once",
            "        if batch.delay_ms is None and batch.begun:\n",
            "        if not batch.delay_ms and batch.begun:\n",
        ),
        (
            "begun: no backoff is added to a release that was never begun",
            "        if batch.delay_ms is None and batch.begun:\n",
            "        if batch.delay_ms is None:\n",
        ),
        (
            "begun: what no client saw does not count against the bound",
            "run.forgiven - run.unseen < self.config.delivery_count_limit",
            "run.forgiven < self.config.delivery_count_limit",
        ),
        (
            "begun: what is forgiven is bounded",
            "return FORGIVEN if run.forgiven - run.unseen < self.config.delivery_count_limit else NOT_FORGIVEN",
            "return FORGIVEN",
        ),
        (
            "begun: only releases are forgiven",
            "        if acknowledge_type is not AcknowledgeType.RELEASE or not self.config.forgives:\n",
            "        if not self.config.forgives:\n",
        ),
        (
            "begun: with kafka_defaults nothing is forgiven",
            "        if acknowledge_type is not AcknowledgeType.RELEASE or not self.config.forgives:\n",
            "        if acknowledge_type is not AcknowledgeType.RELEASE:\n",
        ),
        (
            "begun: the last attempt that was never begun is not the last one",
            "                return AVAILABLE if forgiving and run.last >= self.start_offset else self.released_state(run)\n",
            "                return self.released_state(run)\n",
        ),
        (
            "begun: the next leader learns what is forgiven",
            "run.forgiven - (run.forgiving != NOT_FORGIVEN),",
            "0,",
        ),
        (
            "throttle: a lock that ends does not count as a release",
            "        run.released = False\n        state",
            "        state",
        ),
        (
            "throttle: a member that leaves does not count as a release",
            "                    part.released = False\n",
            "",
        ),
        (
            "throttle: a release that was never begun tells nothing about the record",
            "            else:\n                part.released = acknowledge_type",
            "            if True:\n                part.released = acknowledge_type",
        ),
        (
            "backoff: a lock that ends waits",
            "        run.available_at_ms = self.retry_at_ms(run, ended_at_ms, now_ms)\n        return self.offer(run)\n",
            "        return self.offer(run)\n",
        ),
        (
            "backoff: the wait of a lock counts from its deadline",
            "        ended_at_ms = run.lock_expires_at_ms\n        run.unlock()\n        run.released",
            "        ended_at_ms = now_ms\n        run.unlock()\n        run.released",
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
            "begun: a failed write takes the forgiveness back",
            "            self.forgive(run, NOT_FORGIVEN)\n",
            "",
        ),
        (
            "begun: a durable write keeps the forgiveness for good",
            "            run.forgiving = NOT_FORGIVEN\n",
            "",
        ),
        (
            "begun: the count of what no client saw is taken back too",
            "        run.unseen += (forgiving == UNSEEN) - (run.forgiving == UNSEEN)\n",
            "        run.unseen += forgiving == UNSEEN\n",
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
            "begun: the backoff goes by attempts",
            "run.batch_first, run.attempt, ended_at_ms)",
            "run.batch_first, run.delivery_count, ended_at_ms)",
        ),
    ),
    *gateway(
        "share_partition/backoff",
        (
            "backoff: the attempt chooses the wait",
            "    wait_ms = waits[min(attempt, len(waits)) - 1]\n",
            "    wait_ms = waits[min(attempt, len(waits) - 1)]\n",
        ),
        (
            "backoff: a record of which no delivery was begun does not wait",
            "    if not waits or attempt < 1:\n",
            "    attempt = max(attempt, 1)\n    if not waits:\n",
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
            "begun: a split leaves both sides what their write forgives",
            "structs.replace(self, first=offset)",
            "structs.replace(self, first=offset, forgiving=0)",
        ),
        (
            "throttle: a split leaves both sides how the last delivery ended",
            "structs.replace(self, first=offset)",
            "structs.replace(self, first=offset, released=False)",
        ),
        (
            "begun: each write carries what is forgiven",
            "            forgiven = 0 if run.state in TERMINAL else run.forgiven\n",
            "            forgiven = run.forgiven if run.reason else 0\n",
        ),
    ),
    *gateway(
        "share_partition/restoring",
        (
            "a restored deadline is cut to the length of its own lock",
            "now_ms + lock.lock_duration_ms)) if",
            "now_ms + window.config.record_lock_duration_ms)) if",
        ),
        (
            "a restored lock keeps its length",
            "            run.lock_duration_ms = lock.lock_duration_ms\n",
            "            run.lock_duration_ms = window.config.record_lock_duration_ms\n",
        ),
        (
            "begun: a restored lock keeps what is forgiven",
            "        run.forgiven = lock.forgiven\n",
            "",
        ),
        (
            "throttle: a reason tells the next leader of a release",
            "            run.released = reason is not None  # a lock that ends has none\n",
            "",
        ),
        (
            "backoff: a restored lock past its deadline waits from there",
            "window.retry_at_ms(run, lock.deadline_ms, now_ms)",
            "window.retry_at_ms(run, now_ms, now_ms)",
        ),
        (
            "backoff: an ended lock is not held again",
            "now_ms + lock.lock_duration_ms)) if lock.member_id else now_ms\n",
            "now_ms + lock.lock_duration_ms))\n",
        ),
    ),
]
