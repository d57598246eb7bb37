"""Faults of stored records on their way to a reader: the layout of a batch, and the runs of an answer."""

from tests.mutants.mutant import shared

MUTANTS = [
    *shared(
        "protocol/batch_layout",
        ("batch layout: a cut header is an error", "    if len(stored) < HEADER.size:\n", "    if False:\n"),
        (
            "batch layout: an offset has eight bytes",
            "(12 if flags & SPARSE else 4) * count",
            "(8 if flags & SPARSE else 4) * count",
        ),
        ("batch layout: records follow the group's name", "position += GROUP_SIZE.size + size", "position += size"),
        ("batch layout: the group of a batch is read", "    if flags & FOR_GROUP:\n", "    if False:\n"),
        ("batch layout: offsets follow the ends", "offsets_at = HEADER.size + 4 * count", "offsets_at = HEADER.size"),
        ("batch layout: a marker of a transaction is recognised", "bool(flags & CONTROL)", "False"),
    ),
    *shared(
        "protocol/record_runs",
        ("record runs: a cut run is an error", "if at > end or (form", "if (form"),
        ("record runs: an unknown form is an error", "        if form > PACKED:\n", "        if False:\n"),
        ("record runs: the records of a batch end where it ends", ")[0]) != size + 1:", ")[0]) > size + 1:"),
        (
            "record runs: a cut head is an error",
            "        except struct.error as fault:\n",
            "        except KeyError as fault:\n",
        ),
        (
            "record runs: a dense run is dense after a move",
            "self.offsets_at if self.offsets_at < 0 else self.offsets_at + by",
            "self.offsets_at + by",
        ),
        (
            "record runs: a run tells where its records begin",
            "len(ends), before, len(records)",
            "len(ends), 0, len(records)",
        ),
        (
            "record runs: a whole batch has the bytes behind its head",
            "size = len(stored) - records_at\n",
            "size = len(stored)\n",
        ),
    ),
]
