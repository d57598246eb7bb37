"""Faults of a stream's window."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/stream_window",
        (
            "a window that shrank has no room below nothing",
            "return max(0, self.size - self.held)",
            "return self.size - self.held",
        ),
        (
            "what is held counts",
            "        self.held += sum(part.size for part in ranges)\n",
            "",
        ),
        (
            "what is settled makes room",
            "self.held += sum(part.size for part in ranges) - sum(part.size for part in event.ranges)",
            "pass",
        ),
        (
            "what a leader did not say stays",
            "                if part.place not in answered:\n",
            "                if False:\n",
        ),
        (
            "another delivery count is another delivery",
            "                    if other.delivery_count == part.delivery_count\n",
            "",
        ),
        (
            "a later delivery takes the place of the earlier one",
            "            self._forget(ranges)\n",
            "            pass\n",
        ),
        (
            "a reconnect is not sent what the client has",
            "return [position for position in self._events if position > after]",
            "return [position for position in self._events if position >= after]",
        ),
        (
            "what was not written is given back",
            "        self._add(self.position, list(ranges), written=False)",
            "        self._add(self.position, list(ranges), written=True)",
        ),
        (
            "each event has a position of its own",
            "        self.position += 1\n",
            "",
        ),
        (
            "a look that freed nothing is not repeated at once",
            "        self._learned_at = self.held\n",
            "",
        ),
        (
            "a look comes when half of the room is used",
            "2 * self.room <= self.size - self._learned_at",
            "not self.room",
        ),
        (
            "a restored stream takes the last event of a record",
            "for given in sorted(remembered, reverse=True):",
            "for given in sorted(remembered):",
        ),
        (
            "a restored stream counts what the client has",
            "        if rest:\n            window._add(UNKNOWN, rest, written=True)\n",
            "",
        ),
        (
            "a restored stream gives no position twice",
            "        window = cls(size, max(after, position, *remembered))",
            "        window = cls(size, after)",
        ),
        (
            "the events of a restored stream ascend",
            "        window._events = dict(sorted(window._events.items()))\n",
            "",
        ),
        (
            "the rest before a cut stays",
            "        if other.first_offset > first:\n            yield part.cut(first, other.first_offset - 1)\n",
            "",
        ),
    ),
]
