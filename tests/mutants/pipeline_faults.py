"""Faults of the pipeline's pure rules."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "record_answers",
        ("stored records: an escape in a key", '_has(cut_keys, b"\\\\")', "False"),
        ("stored records: headers end a record", "likely.any() and", "False and"),
        ("stored records: a value in base64", """_Form(_VALUE + b'"')""", """_Form(_VALUE + bytes(1))"""),
        ("stored records: the head", "_HEAD.fits(_words(answer, starts, 2))", "True"),
        ("stored records: the name of the time", "_MIDDLE.fits(middles)", "True"),
        ("stored records: a digit", "    if (digits > 9).any():\n", "    if False:\n"),
        ("stored records: the next time", "(middles[1:, 3] != middles[:-1, 3])", "False"),
        ("stored records: bytes of several batches", "if some and size + more > BATCH_BYTES:", "if False:"),
        ("packed records: a wrong size", "    if size <= MOST_RATIO * len(block):", "    if True:"),
        (
            "packed records: a block that becomes fewer bytes",
            "            if len(batch) == size:",
            "            if True:",
        ),
        (
            "stored records: the range ends within a page",
            """last_offset, side="right\"""",
            """last_offset, side="left\"""",
        ),
        ("packed records: the next batch", "        at += len(parts[-1])\n", "        at += len(parts[-1]) + 1\n"),
        ("packed records: batches without records", " if run.record_count]", "]"),
        ("stored records: removed ones leave gaps", "if run.offsets_at >= 0:", "if False:"),
        ("stored records: a part of a batch", "run.records_at - run.before for", "run.records_at for"),
        ("stored records: null is a tombstone", """& (data[values] == ord("n"))""", """& (data[values] == ord("N"))"""),
    ),
    *pipeline(
        "sink/transactions",
        (
            "write: without a note nothing was committed",
            "    if note is None or label is None:\n",
            "    if note is None:\n",
        ),
        ("write: the same batch alone was committed", "    return note == label\n", "    return True\n"),
        ("write: an older checkpoint is refused", "and int(noted) > int(batch)", "and int(noted) > int(batch) + 2"),
        (
            "write: a batch that runs again is not refused",
            "and int(noted) > int(batch)",
            "and int(noted) >= int(batch)",
        ),
        (
            "write: the batches of another query do not count",
            "    if query and noted_query == query and",
            "    if query and",
        ),
    ),
    *pipeline(
        "source/bounded_read",
        (
            "bounded read: a partition is done with its last record, not before",
            "            if entry.last_offset + 1 >= self._ends.get(place, 0):\n",
            "            if entry.last_offset >= self._ends.get(place, 0):\n",
        ),
        (
            "bounded read: a record at the end is a later one",
            "if entry.first_offset < self._ends.get(entry[:2], 0)}",
            "if entry.first_offset <= self._ends.get(entry[:2], 0)}",
        ),
        (
            "bounded read: a record of the start ends the row of later ones",
            "            self._late[place] = 0 if place in early else",
            "            self._late[place] = self._late.get(place, 0) if place in early else",
        ),
        (
            "bounded read: neighbours alone are one range",
            "had[-1].last_offset + 1 == entry.first_offset",
            "had[-1].last_offset + 2 >= entry.first_offset",
        ),
        (
            "bounded read: what it had is kept when ranges are joined",
            "had.append(entry._replace(first_offset=had.pop().first_offset) if follows else entry)",
            "had.append((had.pop(), entry)[1] if follows else entry)",
        ),
        (
            "bounded read: records behind the end are not asked for",
            "            last = min(entry.last_offset, self._ends.get(entry[:2], 0) - 1)\n",
            "            last = entry.last_offset\n",
        ),
        (
            "bounded read: what it has had is left to the next read",
            "in divided(below, had)[1]:",
            "in below:",
        ),
        (
            "bounded read: with a share of the fetches it never gives up",
            "            if not self._patient and self._late",
            "            if self._late",
        ),
        (
            "bounded read: without a share it gives up",
            "            if not self._patient and self._late.get(place, 0) >= LATE_FETCHES:\n",
            "            if False:\n",
        ),
        ("bounded read: what is given up is told", "                self.given_up.append(entry)\n", ""),
        ("bounded read: what came after all is not given up", "        self.given_up = []\n", ""),
        (
            "bounded read: what is missing is counted over ranges",
            "            self._missing[place] = self._missing.get(place, 0) + entry.size\n",
            "            self._missing[place] = entry.size\n",
        ),
        (
            "bounded read: a partition that is done misses nothing",
            "                self._missing.pop(place, None)\n",
            "",
        ),
        (
            "bounded read: a partition that has not ended gives as much as it can",
            "if self._open and self._open == self._missing.keys() else None",
            "if self._missing else None",
        ),
    ),
]
