"""Faults of the sink: how rows are cut into requests, and how attempts of a task share them."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "sink/columns",
        (
            "columns: a request has room for more than its rows",
            "max(1, options.max_request_bytes - STREAM_BYTES)",
            "max(1, options.max_request_bytes)",
        ),
        ("columns: rows of earlier batches take room", "before + room - used, start)", "before + room, start)"),
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
            "            if start < rows.num_rows:\n",
            "            if True:\n",
        ),
        (
            "columns: the last request is sent",
            "    if parts:\n        yield _chunk(topic, parts)\n",
            "",
        ),
        ("columns: a key takes room", """if "key" in rows.schema.names:""", "if False:"),
        (
            "columns: a row takes room beside its texts",
            '_lengths(rows.column("value")), ROW_BYTES)',
            '_lengths(rows.column("value")), 0)',
        ),
        ("columns: rows that name their topics become JSON", " or options.topic is None:", ":"),
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
    ),
    *pipeline(
        "sink/known_records",
        ("known records: each copy of a row counts", "    if count > 1:\n", "    if False:\n"),
        ("known records: a record stands for one row", "        del known[digest]\n", "        pass\n"),
        (
            "known records: those from before the write are told apart",
            "(self._earlier if before else self._others).update(found)",
            "self._others.update(found)",
        ),
        (
            "known records: those from before the write are taken first",
            """            if _take(self._earlier, digest):
                earlier += 1
            elif not _take(self._others, digest):
                places.append(place)
""",
            """            if _take(self._others, digest):
                pass
            elif _take(self._earlier, digest):
                earlier += 1
            else:
                places.append(place)
""",
        ),
        ("known records: a gap lasts", "            self.gone = True\n", ""),
        ("known records: there is a limit", " or self.left + appended > MOST", ""),
        ("known records: a gap is noticed", "self.gone or len(found) < appended", "self.gone"),
        ("known records: what was learned is forgotten at a gap", "            self._others.clear()\n", ""),
        (
            "known records: what is forgotten is counted",
            "self._unread = self.left + appended",
            "self._unread += appended",
        ),
        (
            "known records: what came before is to be left out",
            "not self._others and not self._earlier",
            "not self._others",
        ),
    ),
    *pipeline(
        "sink/digests",
        ("digests: a text is the JSON string of it", """if json.startswith(b'"'):""", "if False:"),
        ("digests: a key counts", "(key, kind,", "(kind,"),
        ("digests: headers count", "sorted(headers.items())", "None"),
        ("digests: the order of headers does not", "sorted(headers.items())", "list(headers.items())"),
        ("digests: a time counts", ", partition, timestamp_ms))", ", partition))"),
        ("digests: a time that rows do not name does not", "if timed else repeat(None)", "if True else repeat(None)"),
        ("digests: a tombstone has no JSON", "is_json and value is not None", "is_json"),
    ),
]
