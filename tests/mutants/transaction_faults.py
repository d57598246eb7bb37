"""Faults of what a call on a transaction is answered, and of the bound of its bytes."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "record_log/transactions/transaction_rules",
        (
            "an outcome that is not known is not definite",
            "definite=False)\n    if wish",
            "definite=True)\n    if wish",
        ),
        ("a fenced producer hears it of its abort", " and not (wish == ABORT and found.reason == Reason.FENCED)", ""),
        ("other acknowledgements are refused", " and found.settled != settled:", " and False:"),
        ("another outcome is refused", "found.state == wish.state and", "True and"),
        (
            "an append to what is not known is definite",
            "return _not_found(transaction_id, definite=True)",
            "return _not_found(transaction_id, definite=False)",
        ),
        ("an append hears that it happened", '{"appended": True} if appended else {}', "{}"),
        ("an old epoch is fenced", "    if given < current:\n", "    if False:\n"),
        ("an epoch ahead is refused", "    if given > current:\n", "    if False:\n"),
        ("an epoch without a producer is refused", "    if current is None:\n", "    if False:\n"),
        (
            "fenced has a code of its own",
            "ProducerFenced if found.reason == Reason.FENCED else InvalidTxnState",
            "InvalidTxnState",
        ),
        ("a part is not committed by itself", "    if found.part_of is not None:\n", "    if False:\n"),
        ("a commit names open parts alone", "        if part not in open_parts:\n", "        if False:\n"),
        ("parts have a bound of partitions", "    if parts and places > MOST_PARTITIONS:\n", "    if False:\n"),
        ("a part begins while the whole is open", "    if whole.state != State.OPEN:\n", "    if False:\n"),
        ("a part begins in the time of the whole", "    if past:\n", "    if False:\n"),
        ("a part has no parts", "    if whole.part_of is not None:\n", "    if False:\n"),
        ("an open one has no reason", "        if self.state != State.OPEN:\n", "        if True:\n"),
    ),
    *gateway(
        "share_partition/restoring",
        (
            "a pending delivery is restored with its own lock alone",
            "    if run.delivery_count != (delivery_count - 1 if run.durable else delivery_count):\n",
            "    if False:\n",
        ),
        ("a pending delivery is the one after the stored", "        run.delivery_count = delivery_count\n", ""),
        (
            "the reason of the delivery before is kept",
            "            run.earlier, run.reason = window.reasons.history(run.earlier, run.reason), None\n",
            "            pass\n",
        ),
    ),
    *gateway(
        "share_partition/pending",
        ("records are named once", "        if batch.first_offset <= last_offset:\n", "        if False:\n"),
        ("what was finished is refused", "        if batch.first_offset < self.start_offset:\n", "        if False:\n"),
        ("no lock is renewed", "        if AcknowledgeType.RENEW in batch.types:\n", "        if False:\n"),
        ("offsets were fetched", "        self.check_fetched(batch, runs)\n", ""),
        (
            "another transaction waits",
            "                if earlier.transaction_id != transaction_id:\n",
            "                if False:\n",
        ),
        ("a repeat is of the same delivery", "if not ours or run.delivery_count != count:", "if not ours:"),
        ("a repeat is of the same member", "if not ours or run.delivery_count", "if run.delivery_count"),
        ("neighbours are held as one range", "        if batch.first_offset != last + 1:\n", "        if True:\n"),
        ("equal neighbours alone are settled as one", " and settled[-1][2:] == part[2:]:", ":"),
        ("a refused hold is let go", "        if not ok:\n            self._free(hold)\n", "        if not ok:\n"),
        (
            "a refused hold is forgotten",
            "            self._free(hold)\n            self._forget(hold)\n",
            "            self._free(hold)\n",
        ),
        ("only a durable hold is decided", " if hold.durable]", "]"),
        ("a settlement is of one delivery", " or run.delivery_count != batch.delivery_count:", ":"),
        ("only pending records are settled", "if run.write not in ready or ", "if "),
        (
            "nothing is settled below the start offset",
            "first = max(batch.first_offset, self.start_offset)",
            "first = batch.first_offset",
        ),
        ("what is not settled is let go", "            for run in self._free(hold):\n", "            for run in ():\n"),
        (
            "what is let go is not pending in the state",
            "                if first <= run.last:\n",
            "                if False:\n",
        ),
        (
            "locks go on when records are let go",
            "            self.time_lock(run.lock_expires_at_ms, run.first, run.last)\n",
            "",
        ),
        ("a joined hold is awaited", "                joined[id(earlier)] = earlier\n", ""),
    ),
    *gateway(
        "record_log/transactions/transaction_sizes",
        ("bytes are bounded", "        if total > self._most_bytes:\n", "        if False:\n"),
        ("bytes are added up", "self._bytes.get(counted, 0) + size", "size"),
        (
            "the transactions that are counted are bounded",
            "        if len(self._bytes) > MOST:\n",
            "        if False:\n",
        ),
        (
            "what appended nothing is not counted",
            "self._bytes.get(counted, 0) - size",
            "self._bytes.get(counted, 0)",
        ),
        ("the one used least recently goes", "        self._bytes.move_to_end(counted)\n", ""),
    ),
    *gateway(
        "record_log/reading/cache",
        (
            "what is heard of the log end says nothing about what is stable",
            "max(known.stable_offset, last_stable_offset, known.log_start_offset)",
            "max(known.stable_offset, last_stable_offset, known.log_start_offset, log_end_offset)",
        ),
        (
            "an undecided batch is not stable",
            "and (batch.transaction_id is None or batch.decided):",
            "and True:",
        ),
        (
            "memory does not answer behind the last stable offset that it knows",
            "            elif offset >= stable_offset:\n                return None\n",
            "",
        ),
        (
            "a committed read ends at the last stable offset",
            "    batches = below(batches, stable_offset)\n",
            "",
        ),
        (
            "memory does not answer with a batch whose transaction it does not know",
            "batches if all(map(_decided, batches)) else None",
            "batches",
        ),
        (
            "memory notes that it has met a transaction",
            "        known.transactional |= batch.transaction_id is not None\n",
            "",
        ),
    ),
    *gateway(
        "delivery/partition_reader",
        (
            "aborted records are void for a read_committed group",
            " or (committed and batch.aborted):",
            ":",
        ),
        (
            "aborted records are for a read_uncommitted group",
            " or (committed and batch.aborted):",
            " or batch.aborted:",
        ),
    ),
]
