"""Faults to plant, one at a time: where, what stands there, what to put in its place, and the rule that breaks.

Rules are numbered as in KIP-932's description of a share-partition: 3 transitions, 4 loading, 5 next fetch offset, 6 acquiring,
7 throttling, 8 acknowledging, 9 persisting, 10 lock timeout, 11 release, 12 start offset, 13 aborted records,
14 delivery-complete count, 15 limits, 16 leader change; 9.x is the share coordinator, 11.x the dead-letter queue.
"""

from typing import NamedTuple

GATEWAY = "sharequeue_gateway"
COORDINATOR = "sharequeue_share_coordinator"


class Mutant(NamedTuple):
    """One fault. `old` stands exactly once in the file."""

    file: str
    old: str
    new: str
    rule: str


def gateway(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{GATEWAY}/{module}.py", old, new, rule) for rule, old, new in rows]


def coordinator(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{COORDINATOR}/{module}.py", old, new, rule) for rule, old, new in rows]


MUTANTS = [
    *gateway(
        "in_flight",
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
            "9 what lies below the start offset is not written",
            "return StateBatch(max(self.first, start_offset), self.last, int(self.state), self.delivery_count)",
            "return StateBatch(self.first, self.last, int(self.state), self.delivery_count)",
        ),
        (
            "3 both sides of a split belong to the write",
            "            self.write.runs.append(right)",
            "            pass",
        ),
        (
            "10 a split leaves both sides the remaining lock time",
            "        right.lock_expires_at_ms = self.lock_expires_at_ms\n",
            "        right.lock_expires_at_ms = 0\n",
        ),
    ),
    *gateway(
        "restoring",
        (
            "4 a batch that begins below the start offset fails the load",
            "batch.first_offset < expected:",
            "batch.first_offset < 0:",
        ),
        (
            "4 a batch that ends before it begins fails the load",
            "if batch.last_offset < batch.first_offset or batch.first_offset",
            "if batch.first_offset",
        ),
        (
            "4 finished batches count at load",
            "        window.count_terminal(run, 1)",
            "        pass",
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
            "if deadline_ms > now_ms:",
            "if deadline_ms >= 0:",
        ),
        (
            "16 a restored deadline is at most one lock duration away",
            "deadline_ms = min(lock.deadline_ms, longest_ms)",
            "deadline_ms = lock.deadline_ms",
        ),
        (
            "16 a restored lock keeps its delivery count",
            "        run.delivery_count = lock.delivery_count\n",
            "",
        ),
        (
            "16 a delay belongs to one delivery",
            "if run.delivery_count != annotation.delivery_count or run.state is ACQUIRED:",
            "if run.state is ACQUIRED:",
        ),
    ),
    *gateway(
        "window",
        (
            "5 the first available record comes first",
            "self._hint = min(self._hint, offset) if self.find_next else offset",
            "self._hint = offset",
        ),
        (
            "5 holes that nobody read come before available records",
            "            if self.gap_active and run.first > expected:\n                return expected\n",
            "",
        ),
        (
            "5 after the window comes the next offset",
            "        return self.end_offset + 1\n",
            "        return self.end_offset\n",
        ),
        (
            "12 the start offset stops at a hole that nobody read",
            "            if run.first > expected and self.gap_active and self.gap_start < run.first:\n",
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
            "12 what was read after a load is passed",
            "            self.move_gap(self.start_offset)\n",
            "",
        ),
        (
            "12 holes behind what was loaded are natural",
            "        if self.gap_active and run.last > self.gap_end:\n",
            "        if False:\n",
        ),
        (
            "14 records that leave the window are counted no more",
            "            self.count_terminal(run, -1)\n        if count == len(runs):",
            "            pass\n        if count == len(runs):",
        ),
        (
            "14 finished records below the start offset do not count",
            "sign * max(0, run.last - max(run.first, self.start_offset) + 1)",
            "sign * run.size",
        ),
        (
            "12 a log start archives what is available below it",
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
        "acquisition",
        (
            "6.1 no records asked for, none acquired",
            "    if max_records <= 0 or not batches:\n",
            "    if not batches:\n",
        ),
        (
            "6.1 data below the start offset is nothing",
            "    if last < window.start_offset:\n        return []\n",
            "",
        ),
        (
            "6.2 a full window redelivers up to its end",
            "return (window.end_offset - fetch_offset + 1, False) if fetch_offset <= window.end_offset else (0, False)",
            "return (0, False)",
        ),
        (
            "6.2 a full window takes nothing behind its end",
            "        last = min(last, window.end_offset)\n",
            "        pass\n",
        ),
        (
            "6.3 what compaction removed is archived",
            "        window.discard(fetch_offset, base - 1)\n",
            "",
        ),
        (
            "6.4 data that begins below the start offset is acquired from there",
            "        base = max(base, window.start_offset)\n",
            "",
        ),
        (
            "6.5 a read that meets nothing of the window is a new batch",
            "            if position == base:\n",
            "            if False:\n",
        ),
        (
            "6.5 holes are filled only while they are unread",
            "        if run.first > position and window.gap_active and run.first > window.gap_start:\n",
            "        if run.first > position:\n",
        ),
        (
            "6.5 record_limit stops inside a batch",
            "return self.left if self._mode is AcquireMode.RECORD_LIMIT else MAX_INT64",
            "return MAX_INT64",
        ),
        (
            "6.5 batch_optimized takes whole batches",
            "return self.left if self._mode is AcquireMode.RECORD_LIMIT else MAX_INT64",
            "return self.left",
        ),
        (
            "6.5 only available records are acquired",
            "acquirable = [run for run in batch_runs if run.acquirable and",
            "acquirable = [run for run in batch_runs if run.state is AVAILABLE and",
        ),
        (
            "3 acquiring raises the delivery count",
            "        run.delivery_count += 1\n",
            "",
        ),
        (
            "6.6 new records come at count 1",
            "            self.acquired.append(AcquiredRange(first, last, 1, self._deadline_ms))\n",
            "            self.acquired.append(AcquiredRange(first, last, 0, self._deadline_ms))\n",
        ),
        (
            "6.6 a limit is cut at the end of a log batch",
            "            last = min(last, self._log_batch_end(first + self.left - 1))\n",
            "            last = min(last, first + self.left - 1)\n",
        ),
        (
            "6.6 a limit that ends in a hole is cut there",
            "if index == len(self._lasts) or self._batches[index].base_offset > offset:",
            "if index == len(self._lasts):",
        ),
        (
            "6.6 entries have at least batch_size offsets",
            "if batch.base_offset - begin >= batch_size:",
            "if batch.base_offset > begin:",
        ),
        (
            "6.6 the rest of a log batch is available at count 0",
            "                self._insert(end + 1, last, AVAILABLE, first, last)\n",
            "",
        ),
        (
            "6.6 an empty window takes the first acquired offset as its start",
            "            window.start_offset = first\n",
            "            pass\n",
        ),
        (
            "7 a throttled batch waits for a call of its own",
            "            if self.acquired:\n                self._alone = True\n                return\n            self._redeliver",
            "            self._redeliver",
        ),
        (
            "7 a throttled batch ends the call",
            "            self._redeliver_throttled(acquirable, first, last, threshold)\n            self._alone = True\n",
            "            self._redeliver_throttled(acquirable, first, last, threshold)\n",
        ),
        (
            "7 throttling begins at half the limit, rounded up",
            "threshold = max(2, -(-limit // 2))",
            "threshold = max(2, limit // 2)",
        ),
        (
            "7 throttling begins at two deliveries at the least",
            "threshold = max(2, -(-limit // 2))",
            "threshold = max(1, -(-limit // 2))",
        ),
        (
            "7 portions halve with each delivery",
            "max(1, size >> (run.delivery_count - threshold + 1))",
            "max(1, size >> 1)",
        ),
        (
            "7 the size of the batch decides, not what is available of it",
            "                size = run.batch_last - run.batch_first + 1\n",
            "                size = run.size\n",
        ),
        (
            "7 a last delivery comes alone",
            "last_attempt = self._limit - 1 if self._limit > 2 else -1",
            "last_attempt = -1",
        ),
        (
            "7 a limit of two has no last delivery that comes alone",
            "last_attempt = self._limit - 1 if self._limit > 2 else -1",
            "last_attempt = self._limit - 1",
        ),
        (
            "13 offsets without a record are cut out of the answer",
            "    return cut(acquired, absent)\n",
            "    return acquired\n",
        ),
        (
            "13 offsets without a record are archived",
            "                part.become(ARCHIVED)\n",
            "",
        ),
        (
            "15 what is held counts against the limit of locks",
            "        window.held_count += run.size\n",
            "",
        ),
        (
            "15 the span has a bound of its own",
            "return max(0, held_room), window.span < config.max_span",
            "return max(0, held_room), True",
        ),
    ),
    *gateway(
        "share_partition",
        (
            "8.2 an acknowledgement below the start offset is ignored",
            "                if batch.last_offset >= self.start_offset:\n",
            "                if batch.last_offset >= 0:\n",
        ),
        (
            "8.3 what was never fetched is an invalid request",
            "        if self.runs[index].last < batch.last_offset:\n",
            "        if False:\n",
        ),
        (
            "8.3 what lies before the window is not held",
            "        if not known:\n",
            "        if index < 0:\n",
        ),
        (
            "8.4 only the holder acknowledges",
            "        if run.member_id != member_id:\n",
            "        if False:\n",
        ),
        (
            "8.4 a second transition is refused",
            '        if run.write is not None:\n            raise InvalidRecordState(f"{where}: another',
            '        if False:\n            raise InvalidRecordState(f"{where}: another',
        ),
        (
            "8.4 only acquired records are acknowledged",
            "        if run.state is not ACQUIRED:\n            detail",
            "        if run.state is ARCHIVING:\n            detail",
        ),
        (
            "8.4 another delivery count is refused",
            "        if delivery_count is not None and run.delivery_count != delivery_count:\n            raise",
            "        if False:\n            raise",
        ),
        (
            "8.5 gap archives",
            "            case AcknowledgeType.GAP:\n                return ARCHIVED",
            "            case AcknowledgeType.GAP:\n                return ACKNOWLEDGED",
        ),
        (
            "8.5 accept acknowledges",
            "            case AcknowledgeType.ACCEPT:\n                return ACKNOWLEDGED",
            "            case AcknowledgeType.ACCEPT:\n                return ARCHIVED",
        ),
        (
            "8.5 gap leaves the dead-letter queue alone, reject does not",
            "                return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED\n            case AcknowledgeType.RENEW",
            "                return ARCHIVED\n            case AcknowledgeType.RENEW",
        ),
        (
            "8.5 renewing can be off",
            "                if not self.config.renew_acknowledge_enable:\n",
            "                if False:\n",
        ),
        (
            "8.5 a renewal is a full lock",
            "                part.lock_expires_at_ms = now_ms + self.config.record_lock_duration_ms\n",
            "                part.lock_expires_at_ms += 1\n",
        ),
        (
            "8.6 a failing request undoes what it began",
            "        except (InvalidRecordState, InvalidRequest):\n            self._roll_back(write, now_ms)\n",
            "        except (InvalidRecordState, InvalidRequest):\n",
        ),
        (
            "8.7 types stay with their offsets",
            "        offset = batch.first_offset\n        for",
            "        offset = first\n        for",
        ),
        (
            "8.7 a repeat at the same delivery count is recognised",
            "        return run.state is target or (target is ARCHIVING and run.state is ARCHIVED)\n",
            "        return False\n",
        ),
        (
            "8.7 a repeat is one of the same delivery",
            "if delivery_count is None or target is None or run.delivery_count != delivery_count:",
            "if delivery_count is None or target is None:",
        ),
        (
            "8.7 a repeat waits for the write it repeats",
            "                    joined[id(run.write)] = run.write\n",
            "                    pass\n",
        ),
        (
            "3 a release at the limit archives",
            "        if run.delivery_count < self.config.delivery_count_limit:\n            return AVAILABLE",
            "        if run.delivery_count <= self.config.delivery_count_limit:\n            return AVAILABLE",
        ),
        (
            "3 with a dead-letter queue the limit leads to ARCHIVING",
            "            return AVAILABLE\n        return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED\n",
            "            return AVAILABLE\n        return ARCHIVED\n",
        ),
        (
            "10 below the start offset a record is archived",
            "        if run.last < self.start_offset:\n            return ARCHIVED\n        if run.delivery_count <",
            "        if run.delivery_count <",
        ),
        (
            "9 a write carries the delivery-complete count",
            "    def _fill(self, write: StateWrite) -> None:\n        write.delivery_complete_count = self.delivery_complete_count\n",
            "    def _fill(self, write: StateWrite) -> None:\n",
        ),
        (
            "9 a failed write is rolled back",
            "made_available = self._commit(write) if ok else self._roll_back(write, now_ms)",
            "made_available = self._commit(write)",
        ),
        (
            "9 a failed write leaves an expired lock available",
            "            if run.lock_expires_at_ms > now_ms:\n                continue\n",
            "            continue\n",
        ),
        (
            "9 past the limit a failed write leaves an expired lock archived",
            "if run.last < self.start_offset or run.delivery_count >= self.config.delivery_count_limit:",
            "if run.last < self.start_offset:",
        ),
        (
            "9 a failed write below the log start leaves its records archived",
            "if run.last < self.start_offset or run.delivery_count >= self.config.delivery_count_limit:",
            "if run.delivery_count >= self.config.delivery_count_limit:",
        ),
        (
            "9 a roll-back across the log start has two sides",
            "                self.cut_out(run, self.start_offset, run.last)\n            if run.state in TERMINAL",
            "                pass\n            if run.state in TERMINAL",
        ),
        (
            "14 a roll-back takes the count back",
            "            if run.state in TERMINAL:\n                self.count_terminal(run, -1)\n",
            "",
        ),
        (
            "14 a transition to a final state counts when it starts",
            "        if state in TERMINAL:\n            self.count_terminal(run, 1)\n",
            "",
        ),
        (
            "9 a committed release can be found again",
            "                    self.mark_available(run.first)\n                    made_available = True\n        return made_available\n\n    def _roll_back",
            "                    made_available = True\n        return made_available\n\n    def _roll_back",
        ),
        (
            "9 an outcome moves the start offset",
            "        start_moved = self.advance()\n",
            "        start_moved = False\n",
        ),
        (
            "9 a transition on its way beats the lock",
            "                if run.write is not None:\n                    continue\n                if run.state is ACQUIRED and",
            "                if run.state is ACQUIRED and",
        ),
        (
            "10 a lock ends at its deadline, not before",
            "run.state is ACQUIRED and run.lock_expires_at_ms <= now_ms:",
            "run.state is ACQUIRED:",
        ),
        (
            "10 a lock ends at its deadline, not after",
            "run.state is ACQUIRED and run.lock_expires_at_ms <= now_ms:",
            "run.state is ACQUIRED and run.lock_expires_at_ms < now_ms:",
        ),
        (
            "10 an ended lock frees its room",
            "            return False\n        self.held_count -= run.size\n",
            "            return False\n",
        ),
        (
            "10 a lock across the start offset ends on each side for itself",
            "        if run.first < self.start_offset <= run.last:\n            right = run.split(self.start_offset)\n",
            "        if False:\n            right = run.split(self.start_offset)\n",
        ),
        (
            "10 an ended lock has no holder",
            "        run.unlock()\n        state = self._made_available(run)\n",
            "        state = self._made_available(run)\n",
        ),
        (
            "11 only the member's own records are released",
            "if run.state is ACQUIRED and run.write is None and run.member_id == member_id:\n                part = run",
            "if run.state is ACQUIRED and run.write is None:\n                part = run",
        ),
        (
            "11 a release across the start offset has two sides",
            "                if run.first < self.start_offset <= run.last:\n                    below",
            "                if False:\n                    below",
        ),
        (
            "12 a log start behind the start offset is ignored",
            "        if log_start_offset <= self.start_offset:\n            return False\n",
            "",
        ),
        (
            "12 a log start beyond the window moves its end",
            "        self.end_offset = max(self.end_offset, log_start_offset)\n",
            "",
        ),
        (
            "14 finished records below a log start are counted no more",
            "                self.delivery_complete_count -= gone\n",
            "                pass\n",
        ),
        (
            "11.1 a dead letter is due when ARCHIVING is durable",
            "for run in write.runs if ok and run.state is ARCHIVING]",
            "for run in write.runs if run.state is ARCHIVING]",
        ),
        (
            "11.2 a dead letter on its way is not finished early",
            "            if run.state is ARCHIVING and run.write is None:\n                part = self.cut_out(run, first",
            "            if run.state is ARCHIVING:\n                part = self.cut_out(run, first",
        ),
        (
            "11.3 a written dead letter counts",
            "                self.count_terminal(part, 1)\n                changed.append(part)",
            "                changed.append(part)",
        ),
        (
            "11.4 causes are inferred from the count at load",
            "LIMIT_EXCEEDED if run.delivery_count >= config.delivery_count_limit else REJECTED\n                dead",
            "REJECTED\n                dead",
        ),
        (
            "11.5 reject and limit have causes of their own",
            "part.cause = REJECTED if acknowledge_type is AcknowledgeType.REJECT else LIMIT_EXCEEDED",
            "part.cause = LIMIT_EXCEEDED",
        ),
        (
            "a delayed release waits",
            "                    part.available_at_ms = now_ms + batch.delay_ms\n",
            "                    pass\n",
        ),
        (
            "a delay ends when its time has come",
            "                elif run.available_at_ms and run.available_at_ms <= now_ms:\n",
            "                elif False:\n",
        ),
        (
            "a delay is persisted beside its state",
            "        if run.reason is not None or run.available_at_ms:\n",
            "        if run.reason is not None:\n",
        ),
        (
            "a delay that keeps the window full ends early",
            "        self._end_delays_that_block(left <= 0)\n",
            "",
        ),
        (
            "a delay that does not keep the window full stays",
            "            if not locks_used_up and not run.finished:\n                return\n",
            "",
        ),
        (
            "a failed acknowledgement leaves no reason behind",
            "            run.reason = run.cause = None\n",
            "",
        ),
    ),
    *coordinator(
        "state_batches",
        (
            "9.5 the higher delivery count wins",
            "heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))",
            "heapq.heappush(covering, (batch.delivery_count, -batch.delivery_state, batch.last_offset))",
        ),
        (
            "9.5 at one count the higher state wins",
            "heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))",
            "heapq.heappush(covering, (-batch.delivery_count, batch.delivery_state, batch.last_offset))",
        ),
        (
            "9.5 what lies below the start offset is dropped",
            "            if batch.last_offset >= start_offset\n",
            "",
        ),
        (
            "9.5 only batches that touch are joined",
            "            if same and last.last_offset + 1 == batch.first_offset:\n",
            "            if same:\n",
        ),
    ),
    *coordinator(
        "shard",
        (
            "9.4 the start offset never goes back",
            "    start_offset = max(request.start_offset, state.start_offset)\n    count",
            "    start_offset = request.start_offset\n    count",
        ),
        (
            "9.4 a lower leader epoch is fenced",
            "    if leader_epoch < state.recorded_leader_epoch:\n        return _fenced(request.partition, leader_epoch, state)\n    if state_epoch",
            "    if state_epoch",
        ),
        (
            "9.4 a snapshot follows a number of updates",
            "    if state.updates < updates_per_snapshot:\n        state_batches",
            "    if state.updates <= updates_per_snapshot:\n        state_batches",
        ),
        (
            "9.4 the higher of two counts stays",
            "        return max(request.delivery_complete_count, state.delivery_complete_count)\n",
            "        return request.delivery_complete_count\n",
        ),
        (
            "16 a read with a higher leader epoch fences the lower ones",
            "    if leader_epoch == state.recorded_leader_epoch:\n        return Decision(result)\n",
            "    return Decision(result)\n",
        ),
    ),
]
