"""Faults of the window, its runs and their loading: protocol 3, 4, 5, 12, 14 and 16."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/restoring",
        ("4 a batch that nobody may store", "batch.delivery_state in STATES", "True"),
        (
            "4 a batch begins behind the last one, and not below the start offset",
            "expected <= first <= last",
            "first <= last",
        ),
        (
            "16 a lock lives only where its delivery is later than the persisted one",
            "lock.delivery_count <= count",
            "lock.delivery_count < count",
        ),
        ("16 a lock is of no use where records are finished", "state is not AVAILABLE or lock", "lock"),
        (
            "16 the lock of the last delivery counts",
            "(-lock.delivery_count, -lock.deadline_ms",
            "(lock.delivery_count, -lock.deadline_ms",
        ),
        ("16 a delay belongs to one delivery", "        if last:\n", "        if True:\n"),
        ("16 a restored lock stays a lock", "self._deadlines.append((deadline_ms, run.first, run.last))", "pass"),
        ("2 a restored delay ends", "self._deadlines.append((available_at_ms, run.first, run.last))", "pass"),
        ("2 a delay that is over delays nothing", "available_at_ms > self._now_ms", "available_at_ms"),
        ("2 a reason tells the next leader of a release", "run.released = reason is not None", "run.released = False"),
        (
            "5 what is finished forgives nothing",
            "        if run.state not in TERMINAL:\n            run.forgiven",
            "        if True:\n            run.forgiven",
        ),
        ("10 records that were never delivered are new", "first < window.new_from:", "False:"),
        ("10 a hole is read again", "if first > expected and window.gap_start < 0:", "if False:"),
        (
            "10 pending deliveries are restored",
            "            self._hold(run, delivery_count + 1",
            "            (run, delivery_count + 1",
        ),
        (
            "17 neighbours of another count are another batch",
            "            batch.delivery_count,\n        ):\n            break",
            "            following.delivery_count,\n        ):\n            break",
        ),
    ),
    *gateway(
        "share_partition/window",
        (
            "3 a release at the limit archives",
            "return run.attempt >= self.config.delivery_count_limit",
            "return run.attempt > self.config.delivery_count_limit",
        ),
        (
            "begun: the limit goes by attempts",
            "return run.attempt >= self.config.delivery_count_limit",
            "return run.delivery_count >= self.config.delivery_count_limit",
        ),
        (
            "5 records that a new leader restores are acquirable",
            "self._available, self._deadlines = runs, available,",
            "self._available, self._deadlines = runs, [],",
        ),
        (
            "4 a gap reaches the end of the window",
            "self.gap_end = self.end_offset if",
            "self.gap_end = self.gap_start if",
        ),
        ("deadlines that a new leader restores come in order", "heapq.heapify(deadlines)", "pass"),
    ),
    *gateway(
        "share_partition/runs",
        (
            "5 what is accepted carries nothing that is forgiven",
            "forgiven = 0 if run.state in TERMINAL else run.forgiven",
            "forgiven = run.forgiven",
        ),
        (
            "3 a record with a transition in progress is not acquirable",
            "return self.state is AVAILABLE and self.write is None and not self.available_at_ms",
            "return self.state is AVAILABLE and not self.available_at_ms",
        ),
        (
            "3 a delayed record is not acquirable",
            "return self.state is AVAILABLE and self.write is None and not self.available_at_ms",
            "return self.state is AVAILABLE and self.write is None",
        ),
        (
            "9 a state in progress is not finished: the start offset waits for it",
            "return self.state in TERMINAL and self.write is None",
            "return self.state in TERMINAL",
        ),
        (
            "9 offsets below the start offset are not written",
            "            first = max(run.first, self.start_offset)\n",
            "            first = run.first\n",
        ),
        (
            "3 a change of state under way can only be taken back",
            "not in (TRANSITIONS if self.write is None else ROLL_BACKS)",
            "not in TRANSITIONS | ROLL_BACKS",
        ),
        (
            "3 both sides of a split belong to the write",
            "            self.write.runs.append(right)",
            "            pass",
        ),
        (
            "10 a split leaves both sides the remaining lock time",
            "structs.replace(self, first=offset)",
            "structs.replace(self, first=offset, lock_expires_at_ms=0)",
        ),
    ),
    *gateway(
        "share_partition/restoring",
        (
            "4 finished batches count at load",
            "                finished += size",
            "                pass",
        ),
        (
            "15 restored records count against the limits",
            "                waiting += size\n",
            "",
        ),
        (
            "16 a lock past its deadline gives an available record",
            "if deadline_ms > now_ms or",
            "if deadline_ms >= 0 or",
        ),
        (
            "16 a last delivery whose lock ended without a leader is settled, not repeated",
            " or window.is_last_attempt(run):",
            ":",
        ),
        (
            "16 a restored deadline is at most one lock duration away",
            "max(now_ms, min(lock.deadline_ms, now_ms + lock.lock_duration_ms))",
            "max(now_ms, lock.deadline_ms)",
        ),
        (
            "16 a restored lock keeps its delivery count",
            "        run.delivery_count = lock.delivery_count\n",
            "",
        ),
        (
            "16 the reason of a delivery that is not the last one is an earlier one",
            "None if last else reason)",
            "None)",
        ),
    ),
    *gateway(
        "share_partition/window",
        (
            "5 the first available record comes first",
            "            self._available.insert(index, first)\n",
            "            self._available.append(first)\n",
        ),
        (
            "5 acquired records are no longer acquirable",
            "            del self._available[index]\n",
            "            pass\n",
        ),
        (
            "5 records with a release in progress are not acquirable yet",
            "        if right.state is AVAILABLE and right.acquirable:\n",
            "        if right.state is AVAILABLE:\n",
        ),
        (
            "5 nothing that can be acquired is passed over",
            "        index = bisect_left(self._available, offset)\n",
            "        index = bisect_right(self._available, offset)\n",
        ),
        (
            "6 a read stops before a long stretch that cannot be acquired",
            "            if run.first - last > _NEAR:\n",
            "            if False:\n",
        ),
        (
            "6 a read goes on behind a window that ends near",
            "        if self.end_offset - last < _NEAR:\n",
            "        if False:\n",
        ),
        (
            "5 holes that nobody read come before available records",
            "return self._available[0] if hole is None else min(hole, self._available[0])",
            "return self._available[0]",
        ),
        (
            "5 after the window comes the next offset",
            "            return self.end_offset\n        return self.end_offset + 1\n",
            "            return self.end_offset\n        return self.end_offset\n",
        ),
        (
            "12 the start offset stops at a hole that nobody read",
            "            if run.first > expected and 0 <= self.gap_start < run.first:\n",
            "            if False:\n",
        ),
        (
            "12 the start offset passes only finished records",
            "            if not run.finished:\n",
            "            if run.held:\n",
        ),
        (
            "12 the start offset jumps over a natural hole",
            "                expected = run.first\n                break",
            "                break",
        ),
        (
            "12 an emptied window begins behind its last record",
            "self.start_offset = self.end_offset = max(expected, start_offset)",
            "self.start_offset = self.end_offset = start_offset",
        ),
        (
            "12 the start offset never goes back",
            "            self.start_offset = max(start_offset, expected)\n",
            "            self.start_offset = expected\n",
        ),
        (
            "12 offsets read after a load are passed",
            "            self.move_gap(self.start_offset)\n",
            "",
        ),
        (
            "12 holes behind the loaded state are natural",
            "        if self.gap_start >= 0 and run.last > self.gap_end:\n",
            "        if False:\n",
        ),
        (
            "14 records that leave the window are counted no more",
            "            self.count_terminal(run, -1)\n        if count == len(runs):",
            "            pass\n        if count == len(runs):",
        ),
        (
            "16 the start offset passes an end that only memory knows: its lock stays",
            "                self.memory_start = run.last + 1\n",
            "                pass\n",
        ),
        (
            "14 finished records below the start offset do not count",
            "sign * max(0, run.last - max(run.first, self.start_offset) + 1)",
            "sign * run.size",
        ),
        (
            "12 a log start archives available records below it",
            "        run.become(ARCHIVED)\n        self.count_terminal(run, 1)\n",
            "        self.count_terminal(run, 1)\n",
        ),
        (
            "15 the span runs from the start offset to the end",
            "return self.end_offset - self.start_offset + 1 if self.runs",
            "return self.end_offset - self.runs[0].first + 1 if self.runs",
        ),
    ),
]
