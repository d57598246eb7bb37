"""Faults of what a call on a transaction is answered, and of the bound of its bytes."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "record_log/transaction_rules",
        (
            "an outcome that is not known is not definite",
            "definite=False)\n    if found",
            "definite=True)\n    if found",
        ),
        ("a fenced producer hears it of its abort", " and not (wish == ABORT and found.reason == Reason.FENCED)", ""),
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
        ("another principal is refused", "    if owner != principal:\n", "    if False:\n"),
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
        "record_log/transaction_sizes",
        ("bytes are bounded", "        if total > self.most_bytes:\n", "        if False:\n"),
        ("bytes are added up", "self._bytes.get(transaction_id, 0) + size", "size"),
        (
            "the transactions that are counted are bounded",
            "        if len(self._bytes) > MOST:\n",
            "        if False:\n",
        ),
        (
            "what appended nothing is not counted",
            "self._bytes.get(transaction_id, 0) - size",
            "self._bytes.get(transaction_id, 0)",
        ),
        ("the one used least recently goes", "        self._bytes.move_to_end(transaction_id)\n", ""),
    ),
]
