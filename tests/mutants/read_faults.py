"""Faults of what a read of a group takes: ranges of offsets, when a micro-batch begins, and pieces after a failure."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "ranges",
        ("ranges: partitions stay apart when neighbours are joined", "            and last[:2] == entry[:2]\n", ""),
        (
            "ranges: other deliveries stay apart when neighbours are joined",
            "            and last.delivery_count == entry.delivery_count\n",
            "",
        ),
        (
            "ranges: the checkpoint keeps the topic id",
            'topic, _, topic_id = name.partition("/")',
            'topic, topic_id = name.partition("/")[0], ""',
        ),
        (
            "ranges: a gap of one offset stays when neighbours are joined",
            "last.last_offset + 1 == entry.first_offset",
            "last.last_offset + 2 >= entry.first_offset",
        ),
        (
            "ranges: the first offset of a cover is inside",
            "last_offset=cover.first_offset - 1",
            "last_offset=cover.first_offset",
        ),
        (
            "ranges: a cover that reaches beyond a range covers the next one too",
            "                if cover.last_offset > entry.last_offset:\n",
            "                if False:\n",
        ),
        (
            "ranges: an offset that two covers have is inside once",
            "first_offset=max(first, cover.first_offset)",
            "first_offset=cover.first_offset",
        ),
        (
            "ranges: the remainder of a division is shared, too",
            "room = total * (index + 1) // parts - total * index // parts",
            "room = total // parts",
        ),
        ("ranges: no task is without offsets", "    parts = min(parts, total)\n", ""),
        ("ranges: delivery counts are read back", "int(last), int(count), topic_id))", "int(last), 1, topic_id))"),
        (
            "ranges: each partition of a topic has its number",
            "        found.setdefault(topic, {})[str(partition)] = number\n",
            "        found[topic] = {str(partition): number}\n",
        ),
    ),
    *pipeline(
        "source/admission",
        (
            "admission: the least number of records is enough",
            "waiting >= self._min_records",
            "waiting > self._min_records",
        ),
        ("admission: no batch begins without records", "        if waiting and (", "        if ("),
        (
            "admission: the wait begins again with each batch",
            "            self._since_ms = now_ms\n            return True\n",
            "            return True\n",
        ),
    ),
    *pipeline(
        "source/isolation",
        (
            "isolation: records without a delivery stay out",
            "if entry.delivery_count > 0)",
            "if entry.delivery_count >= 0)",
        ),
        (
            "isolation: a level is as large as all its ranges",
            "self._records.get(entry.delivery_count, 0) + entry.size",
            "entry.size",
        ),
        (
            "isolation: other fetches leave out a partition that gave nothing",
            "return {entry[:2] for entry in self._left}",
            "return {entry[:2] for entry in self._left} - self._passed",
        ),
        (
            "isolation: a partition may give again in the next batch",
            "        passed, self._passed = bool(self._passed), set()\n",
            "        passed = bool(self._passed)\n",
        ),
        (
            "isolation: records that others finished are forgotten",
            "        self._left, _ = divided(delivered, self._left)\n",
            "        self._left = sorted(delivered)\n",
        ),
        (
            "isolation: a partition that gave nothing is passed over",
            "        self._passed.add((piece.topic, piece.partition))\n",
            "        return\n",
        ),
        (
            "isolation: a piece has one delivery count",
            " or entry.delivery_count != first.delivery_count:",
            ":",
        ),
        (
            "isolation: a piece ends at a gap",
            "            if entry.first_offset != last_offset + 1:\n",
            "            if False:\n",
        ),
        (
            "isolation: a piece goes on over neighbours",
            "            last_offset = entry.last_offset\n",
            "            break\n",
        ),
        (
            "isolation: the last delivery comes alone",
            "first.delivery_count + 1, self._limit",
            "first.delivery_count, self._limit",
        ),
        (
            "isolation: a piece keeps its size while its level is read",
            "        records = self._records.get(first.delivery_count, first.size)\n",
            "        records = self.left\n",
        ),
        (
            "isolation: a piece asks for no more than is left",
            "min(most, last_offset - first.first_offset + 1)",
            "most",
        ),
        (
            "isolation: records that came are no longer left",
            "        _, self._left = divided(self._left, found)\n",
            "        self._left, _ = divided(self._left, found)\n",
        ),
        ("isolation: pieces shrink evenly over the levels", "later / (later + 1)", "later / (later + 2)"),
    ),
]
