"""Faults of the window, its runs and their loading: protocol 3, 4, 5, 12, 14 and 16."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/runs",
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
            "16 what the state holds needs no lock",
            "        run.durable = lock is None\n",
            "",
        ),
        (
            "16 a restored lock stays a lock",
            "        run.durable = lock is None\n",
            "        run.durable = True\n",
        ),
        (
            "4 finished batches count at load",
            "        window.count_terminal(run, 1)",
            "        pass",
        ),
        (
            "15 restored records count against the limits",
            "    window.count(run, 1)\n",
            "",
        ),
        (
            "a restored delay counts",
            "        window.count(part, 1)\n",
            "",
        ),
        (
            "4 holes before and between batches are read again",
            "            window.gap_start, window.gap_end = expected, window.end_offset\n",
            "            pass\n",
        ),
        (
            "16 a lock lives only where its delivery is later than the persisted one",
            "best.delivery_count <= (found.delivery_count if found else 0)",
            "best.delivery_count < (found.delivery_count if found else 0)",
        ),
        (
            "16 a lock past its deadline gives an available record",
            "if deadline_ms > now_ms or",
            "if deadline_ms >= 0 or",
        ),
        (
            "16 a last delivery whose lock ended without a leader is settled, not repeated",
            " or run.attempt >= window.config.delivery_count_limit:",
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
            "16 a delay belongs to one delivery",
            "last = run.delivery_count == note.delivery_count and run.state is not ACQUIRED",
            "last = run.state is not ACQUIRED",
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
            "a packed deadline comes before a later one of the heap",
            "packed and (not heap or packed[0][0] < heap[0][0]):\n            deadline_ms",
            "packed and not heap:\n            deadline_ms",
        ),
        (
            "the deadlines behind a packed one stay",
            "if following < len(deadlines):",
            "if place + 6 < len(deadlines):",
        ),
        (
            "outdated deadlines that were packed are dropped",
            "len(self._deadlines) + self._packed_count >",
            "len(self._deadlines) >",
        ),
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
            "5 the rest of a cut run stays acquirable",
            "        if right.state is AVAILABLE and right.acquirable:\n",
            "        if False:\n",
        ),
        (
            "5 records with a release in progress are not acquirable yet",
            "        if right.state is AVAILABLE and right.acquirable:\n",
            "        if right.state is AVAILABLE:\n",
        ),
        (
            "5 records that a new leader restores are acquirable",
            "for run in self.runs[first : first + _MARKED_AT_ONCE]\n",
            "for run in self.runs[first:first]\n",
        ),
        (
            "5 nothing that can be acquired is passed over",
            "        index = bisect_left(self._available, offset)\n",
            "        index = bisect_right(self._available, offset)\n",
        ),
        (
            "6 a read stops before a long stretch that cannot be acquired",
            "            if first - last > _NEAR:\n",
            "            if False:\n",
        ),
        (
            "6 a read covers as many records as are wanted",
            "            if found >= most:\n",
            "            if found > most:\n",
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
            "                part.become(ARCHIVED)\n                self.count_terminal(part, 1)\n\n    def advance",
            "                self.count_terminal(part, 1)\n\n    def advance",
        ),
        (
            "15 the span runs from the start offset to the end",
            "return self.end_offset - self.start_offset + 1 if self.runs",
            "return self.end_offset - self.runs[0].first + 1 if self.runs",
        ),
    ),
    *gateway(
        "share_partition/restoring",
        (
            "16 a batch that a lock of the next page may touch waits for it",
            "            if high == count and not last:\n                stop = low\n                break\n",
            "",
        ),
        (
            "4 a page begins behind the last one, and not below the start offset",
            "if ranges.firsts[0] < self._expected:",
            "if False:",
        ),
        ("4 ends of delays are timed after the last page", "        self._window.time_locks(self._deadlines)\n", ""),
        (
            "17 an in-flight batch of two pages ends once",
            "                run.batch_last = end\n",
            "                pass\n",
        ),
        (
            "17 an in-flight batch of three pages ends once",
            "begin < ranges.firsts[0])",
            "False)",
        ),
        (
            "16 locks that overlap are cut together",
            "            if at < len(locks) and locks[at].first_offset <= reach:",
            "            if False:",
        ),
        (
            "10 a window without a hole has no gap",
            "    if records == window.end_offset - window.start_offset + 1:",
            "    if True:",
        ),
        (
            "10 pending deliveries are restored",
            "self._pending = self._pending or bool(page.transactions)",
            "pass",
        ),
    ),
    *gateway(
        "share_partition/restored_page",
        (
            "4 a batch that nobody may store",
            "if state not in _NUMBERS or state == ACQUIRED or count > MAX_INT32:",
            "if False:",
        ),
        (
            "17 equal neighbours are one in-flight batch",
            "                begins[place] = begins[place - 1]\n",
            "                pass\n",
        ),
        (
            "17 an in-flight batch has one end",
            "                ends[place - 1] = ends[place]\n",
            "                pass\n",
        ),
        (
            "17 neighbours of another count are another batch",
            "if first == before + 1 and outcome == same",
            "if first == before + 1",
        ),
        ("17 batches apart are two", "if first == before + 1 and outcome == same", "if outcome == same"),
        (
            "17 an in-flight batch goes on in the next page",
            "                begins[0] = open_batch.first_offset\n",
            "                pass\n",
        ),
        (
            "2 a delay that is over delays nothing",
            "if available_at_ms <= now_ms or state is not AVAILABLE:",
            "if state is not AVAILABLE:",
        ),
        ("2 delayed records are counted", "                delayed += size\n", ""),
        (
            "2 the end of a delay is timed",
            "                time_lock((available_at_ms, first, last))\n",
            "                pass\n",
        ),
        ("2 a reason tells the next leader of a release", "released = reason is not None", "released = False"),
        ("10 records that were never delivered are new", "            new_from = first\n", "            pass\n"),
        ("5 what is finished forgives nothing", "            forgiven, earlier = 0, ()\n", "            pass\n"),
    ),
]
