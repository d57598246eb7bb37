"""Faults of acquiring: protocol 6, 7, 13 and 15."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/acquisition",
        (
            "a reason is an earlier one with the next delivery",
            "run.earlier, run.reason = window.reasons.history(run.earlier, run.reason), None",
            "run.reason = None",
        ),
        (
            "6.2 no more is acquired than was asked for",
            "        left = min(max_records, left)\n",
            "",
        ),
        (
            "6.2 a full window redelivers up to its end",
            "return (window.end_offset - fetch_offset + 1, 0) if fetch_offset <= window.end_offset else (0, 0)",
            "return (0, 0)",
        ),
        (
            "6.2 a full window takes nothing behind its end",
            "        last = min(last, window.end_offset)\n",
            "        pass\n",
        ),
        (
            "6.3 offsets removed by compaction are archived",
            "        window.discard(fetch_offset, base - 1)\n",
            "",
        ),
        (
            "6.4 data that begins below the start offset is acquired from there",
            "            base = max(base, next_offset if next_offset <= last else window.start_offset)\n",
            "",
        ),
        (
            "6.5 a read that meets nothing of the window is a new batch",
            "            if position == base:\n",
            "            if False:\n",
        ),
        (
            "6.5 holes are filled only while they are unread",
            "        if run.first > position and 0 <= window.gap_start < run.first:\n",
            "        if run.first > position:\n",
        ),
        (
            "6.5 record_limit stops inside a batch",
            "most = self.left if self._mode is AcquireMode.RECORD_LIMIT else MAX_INT64",
            "most = MAX_INT64",
        ),
        (
            "6.5 batch_optimized takes whole batches",
            "most = self.left if self._mode is AcquireMode.RECORD_LIMIT else MAX_INT64",
            "most = self.left",
        ),
        (
            "3 acquiring raises the delivery count",
            "        run.delivery_count += 1\n",
            "",
        ),
        (
            "6.6 new records come at count 1",
            "AcquiredRange(first, last, 1, self._deadline_ms, self._lock_duration_ms)",
            "AcquiredRange(first, last, 0, self._deadline_ms, self._lock_duration_ms)",
        ),
        (
            "6.6 a limit is cut at the end of a log batch",
            "            last = min(last, self._log_batch_end(first + most - 1))\n",
            "            last = min(last, first + most - 1)\n",
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
            "                pass\n",
        ),
        (
            "6.6 an empty window takes the first acquired offset as its start",
            "            window.start_offset = first\n",
            "            pass\n",
        ),
        (
            "7 a throttled batch waits for a call of its own",
            "            if not self.acquired:\n                self._redeliver",
            "            if True:\n                self._redeliver",
        ),
        (
            "7 a throttled batch ends the call",
            "                self._redeliver_throttled(acquirable, first, last, most, threshold)\n            self._alone = True\n",
            "                self._redeliver_throttled(acquirable, first, last, most, threshold)\n",
        ),
        (
            "7 throttling begins at half the limit, rounded up",
            "threshold = max(2, -(-self._limit // 2))",
            "threshold = max(2, self._limit // 2)",
        ),
        (
            "7 throttling begins at two deliveries at the least",
            "threshold = max(2, -(-self._limit // 2))",
            "threshold = max(1, -(-self._limit // 2))",
        ),
        (
            "7 portions halve with each delivery",
            "max(1, size >> (failures - threshold + 1))",
            "max(1, size >> 1)",
        ),
        (
            "7 the size of the batch decides, not its available part",
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
            "        kept = cut(acquired, absent)\n",
            "        kept = acquired\n",
        ),
        (
            "13 offsets without a record leave the limit to others",
            "        self.left += _size(acquired) - _size(kept)\n",
            "",
        ),
        (
            "13 offsets without a record are cut out of an entry that grew",
            "        before = max(len(self.acquired) - 1, 0)",
            "        before = len(self.acquired)",
        ),
        (
            "13 offsets without a record are archived",
            "                    window.archive(window.cut_out(run, first, last))\n",
            "                    pass\n",
        ),
        (
            "15 held records count against the limit of locks",
            "        window.held_count += run.size\n",
            "",
        ),
        (
            "15 held records that the log has lost leave the limit to others",
            "        left += window.lost_held_count()\n",
            "        pass\n",
        ),
        (
            "15 held records that the log has lost are bounded",
            "    if left <= 0 and window.runs and len(window.runs) < config.max_runs:\n",
            "    if left <= 0 and window.runs:\n",
        ),
        (
            "15 what is new and held counts against the limit of locks",
            "            window.held_count += last - first + 1\n",
            "",
        ),
        (
            "15 a window below the start offset bounds nothing",
            "    if not window.span:",
            "    if not window.runs:",
        ),
        (
            "15 the span has a bound of its own",
            "        or window.end_offset - window.start_offset >= config.max_span\n",
            "",
        ),
        (
            "the runs of the window have a bound of their own",
            "        or len(window.runs) >= config.max_runs\n",
            "",
        ),
        (
            "new records wait in a crowded window",
            "        or window.crowded\n",
            "",
        ),
        (
            "a crowded window that is empty takes new records",
            "    if not window.span:  # it is empty, or all of it lies below the start offset, so all that is read is new\n",
            "    if False:\n",
        ),
        (
            "what waits counts against a bound of its own",
            "    new = left + config.partition_max_delayed_records - window.waiting_count\n",
            "    new = left + config.partition_max_delayed_records\n",
        ),
        (
            "the bound of what waits does not stop records that are delivered again",
            "        return left, 0\n    return left, min(left, new)",
            "        return 0, 0\n    return left, min(left, new)",
        ),
        (
            "a fetch gets only as many new records as the bound allows",
            "most = min(self.left, self._most_new) if behind_end else self.left",
            "most = self.left",
        ),
        (
            "an unread hole is filled whatever the bound of new records",
            "most = min(self.left, self._most_new) if behind_end else self.left",
            "most = min(self.left, self._most_new)",
        ),
        (
            "16 a new delivery is not durable",
            "        run.durable = False\n",
            "",
        ),
        (
            "a record that is taken waits no longer",
            "        window.waiting_count -= run.size\n",
            "",
        ),
        (
            "a fetch that begins at new records leaves the others of their batch",
            "                base = max(base, fetch_offset)  #",
            "                pass  #",
        ),
        (
            "what is left of a new batch is new",
            "            window.new_from = min(window.new_from, first)\n",
            "",
        ),
        (
            "what is left of a new batch waits",
            "            window.waiting_count += last - first + 1\n",
            "",
        ),
    ),
    *gateway(
        "share_partition/new_records",
        (
            "no fetch begins at new records while a gap is unread",
            "    if window.gap_start >= 0:\n        return None\n",
            "",
        ),
        (
            "no fetch begins at new records without room for one",
            "    if (most_new if new > window.end_offset else left) <= 0:\n        return None\n",
            "",
        ),
        (
            "what is left of a new batch needs no room for new records",
            "(most_new if new > window.end_offset else left)",
            "most_new",
        ),
        (
            "fetches that find no retried records are not counted",
            "    if new == retried:\n        return None\n",
            "",
        ),
        (
            "new records get their share and not more",
            "    window.new_turn -= 100\n",
            "",
        ),
    ),
    *gateway(
        "share_partition/bounds",
        (
            "a crowded window is named by the gateway's bound",
            "return GATEWAY_RUNS if window.crowded else DELAYED_RECORDS",
            "return DELAYED_RECORDS",
        ),
        (
            "the lock limit is named before the bound of what waits",
            "    if left <= 0:\n        return RECORD_LOCKS\n",
            "",
        ),
        (
            "an equal part is taken only of a gateway with too many runs",
            "if sum(runs) > most else None",
            "if sum(runs) >= most else None",
        ),
    ),
]
