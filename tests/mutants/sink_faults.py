"""Faults of rows as columns: how they are merged, and cut into requests."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "sink/columns",
        (
            "columns: a request has room for more than its rows",
            "max(1, options.max_request_bytes - STREAM_BYTES)",
            "max(1, options.max_request_bytes)",
        ),
        (
            "columns: a row that fits exactly is taken",
            "before + room - used, start)",
            "before + room - used - 1, start)",
        ),
        ("columns: rows of earlier batches take room", "before + room - used, start)", "before + room, start)"),
        ("columns: rows of the batch before a cut take no room", "before + room - used, start)", "room - used, start)"),
        ("columns: rows of earlier batches are counted", "start + most_rows - count)", "start + most_rows)"),
        (
            "columns: a large row goes alone",
            "            if end == start and not count:\n",
            "            if end == start:\n",
        ),
        (
            "columns: the bytes of a batch are counted once",
            "used + ends[end - 1] - before, count",
            "used + ends[end - 1], count",
        ),
        (
            "columns: the end of a batch ends no request",
            "            if start < rows.size:\n",
            "            if True:\n",
        ),
        (
            "columns: the last request is sent",
            "    if parts:\n        yield _body(parts), count\n",
            "",
        ),
        (
            "columns: a full request leaves nothing to the next",
            "                parts, used, count = [], 0, 0\n",
            "                parts, count = [], 0\n",
        ),
        ("columns: a key takes room", """if "key" in self.batch.schema.names:""", "if False:"),
        (
            "columns: sizes are in the order of the rows",
            "        if self.order is not None:\n            lengths",
            "        if False:\n            lengths",
        ),
        (
            "columns: a row takes room beside its texts",
            'self._lengths("value"), ROW_BYTES)',
            'self._lengths("value"), 0)',
        ),
        (
            "columns: pieces are merged up to the smallest of their last rows",
            "        bound = min(_row(piece",
            "        bound = max(_row(piece",
        ),
        (
            "columns: the rest of a piece is merged, too",
            "piece.slice(count) if count < piece.num_rows else next(run, None)",
            "next(run, None)",
        ),
        (
            "columns: the last run is given to its end",
            "        yield piece\n        yield from run\n",
            "        yield piece\n",
        ),
        ("columns: nulls come last", "tuple((value is None, value)", "tuple((value is not None, value)"),
        ("columns: rows that name their topics become JSON", " or options.topic is None:", ":"),
        ("columns: rows with headers become JSON", "not set(schema.names) <= _COLUMNS or ", ""),
        (
            "columns: texts of valueFormat=json become JSON",
            """(None, "string", "binary")""",
            """(None, "string", "binary", "json")""",
        ),
        ("columns: a text may be written as bytes", """(None, "string", "binary")""", """(None, "string")"""),
        (
            "columns: bytes are written as columns of bytes alone",
            """options.value_format in (None, "binary")""",
            "True",
        ),
        (
            "columns: a timestamp is in milliseconds",
            "pc.divide(pc.subtract(micros, before_1970), 1000)",
            "pc.subtract(micros, before_1970)",
        ),
        ("columns: a time before 1970 is not rounded up", "pc.less(micros, 0), 999, 0)", "pc.less(micros, 0), 0, 0)"),
        (
            "columns: a key stays a text beside values of bytes",
            """(name == "value" and options.value_format == "binary")""",
            """options.value_format == "binary\"""",
        ),
        (
            "columns: a text that is written as bytes is one of bytes",
            """(name == "value" and options.value_format == "binary")""",
            "False",
        ),
        ("columns: large bytes are bytes", " or pa.types.is_large_binary(column.type)", ""),
    ),
]
