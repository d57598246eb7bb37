"""Faults of a read of the log: where it begins and ends, what filters leave of it, and the schema of its values."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "source/log_offsets",
        (
            "log offsets: a batch does not begin at latest",
            "    if starting == LATEST or (\n",
            "    if (\n",
        ),
        ("log offsets: no partition of a batch begins at latest", "and any(LATEST", "and all(LATEST"),
        (
            "log offsets: earliest is the log start",
            "start if given == EARLIEST else end",
            "end if given == EARLIEST else start",
        ),
        (
            "log offsets: -1 is the log end, -2 the log start",
            "end if offset == LATEST_OFFSET else start",
            "start if offset == LATEST_OFFSET else end",
        ),
        (
            "log offsets: a read does not begin behind the log end",
            """        _check_end(place, offset, end, "startingOffsets")\n""",
            "",
        ),
        (
            "log offsets: a read does not end behind the log end",
            """        _check_end(place, offset, end, "endingOffsets")\n""",
            "",
        ),
        ("log offsets: a read may begin and end at the log end", "    if offset > end:\n", "    if offset >= end:\n"),
        (
            "log offsets: a start among deleted offsets is lost data",
            "if offset < start and fail_on_data_loss:",
            "if False:",
        ),
        (
            "log offsets: a read may begin at the log start",
            "if offset < start and fail_on_data_loss:",
            "if offset <= start and fail_on_data_loss:",
        ),
        ("log offsets: deleted offsets are left out", "starts[place] = max(offset, start)", "starts[place] = offset"),
        (
            "log offsets: a read that ends among deleted offsets is empty",
            "            ends[place] = starts[place]\n",
            "            ends[place] = start\n",
        ),
        (
            "log offsets: a read does not end at earliest",
            "        if offset == EARLIEST_OFFSET:\n",
            "        if False:\n",
        ),
        (
            "log offsets: a read does not end before it begins",
            "        if offset < starts[place]:\n",
            "        if False:\n",
        ),
        (
            "log offsets: a read may end where it begins",
            "        if offset < starts[place]:\n",
            "        if offset <= starts[place]:\n",
        ),
        ("log offsets: an option names no other partition", "        if place not in bounds:\n", "        if False:\n"),
        ("log offsets: an option names every partition", "        if place not in found:\n", "        if False:\n"),
        (
            "log offsets: a partition that was added since is read from 0 on",
            "begun.get(place, 0)",
            "begun.get(place, start)",
        ),
        (
            "log offsets: a checkpoint may lie at the log end",
            "        if at > log_ends[place]:\n",
            "        if at >= log_ends[place]:\n",
        ),
        (
            "log offsets: a checkpoint behind the log end is refused",
            "        if at > log_ends[place]:\n",
            "        if False:\n",
        ),
        (
            "log offsets: a checkpoint may lie behind the last stable offset",
            "        if at > log_ends[place]:\n",
            "        if at > bounds[place][1]:\n",
        ),
        (
            "log offsets: nothing was deleted before a checkpoint at the log start",
            "        if at < start:\n",
            "        if at <= start:\n",
        ),
        ("log offsets: the log start was not deleted", "Deleted(*place, at, start - 1)", "Deleted(*place, at, start)"),
        (
            "log offsets: the checkpoint of another source is refused",
            """ or "log" not in offset:""",
            ":",
        ),
        (
            "log offsets: the partition of a checkpoint is a number",
            "(topic, int(partition)): found",
            "(topic, partition): found",
        ),
        (
            "log offsets: a topic that was created again is refused",
            "        if found != topic_id:\n",
            "        if False:\n",
        ),
        (
            "log offsets: a topic that the query no longer reads is not checked",
            "topic_ids.get(topic, topic_id)",
            "topic_ids.get(topic)",
        ),
        (
            "log offsets: a checkpoint without topic ids is read",
            """offset.get("topic_ids", {}).items()""",
            """offset["topic_ids"].items()""",
        ),
    ),
    *pipeline(
        "source/pushed_filters",
        ("filters: all filters count", "        if not all(\n", "        if filters and not any(\n"),
        (
            "filters: topic and partition both count",
            """entry.topic) and _passes""",
            """entry.topic) or _passes""",
        ),
        ("filters: the greatest of the first offsets counts", "else max(first, least)", "else least"),
        ("filters: the least of the last offsets counts", "else min(last, most)", "else most"),
        ("filters: a range of one offset is kept", "        if first <= last:\n", "        if first < last:\n"),
        ("filters: what is greater begins one offset later", "GreaterThan: value + 1", "GreaterThan: value"),
        ("filters: what is less ends one offset earlier", "LessThan: value - 1", "LessThan: value"),
        ("filters: >= holds its offset", "GreaterThanOrEqual: value}", "GreaterThanOrEqual: value + 1}"),
        ("filters: <= holds its offset", "LessThanOrEqual: value}", "LessThanOrEqual: value - 1}"),
        (
            "filters: the greatest of several offsets is read",
            "(min(wanted), max(wanted))",
            "(min(wanted), min(wanted))",
        ),
        (
            "filters: a list leaves out other topics and partitions",
            "return each.attribute != (column,) or value in each.value",
            "return True",
        ),
        (
            "filters: a list of another column narrows nothing",
            "return each.attribute != (column,) or value in each.value",
            "return value in each.value",
        ),
        (
            "filters: a filter of another column narrows nothing",
            "    if compare is None or each.attribute != (column,):",
            "    if compare is None:",
        ),
        (
            "filters: a value of another type narrows nothing",
            "return not isinstance(wanted, type(value)) or compare(value, wanted)",
            "return compare(value, wanted)",
        ),
        (
            "filters: a bound of offsets is a number",
            "    if not isinstance(value, int):\n        return None, None\n",
            "",
        ),
        (
            "filters: a read begins at the latest of its times",
            "return max(times, default=None)",
            "return min(times, default=None)",
        ),
        (
            "filters: = gives a time to begin at",
            "(EqualTo, GreaterThan, GreaterThanOrEqual))",
            "(GreaterThan, GreaterThanOrEqual))",
        ),
        (
            "filters: a read does not begin at an upper bound",
            "(EqualTo, GreaterThan, GreaterThanOrEqual))",
            "(EqualTo, GreaterThan, GreaterThanOrEqual, LessThan))",
        ),
        (
            "filters: a filter of another column gives no time",
            """        and each.attribute == ("timestamp",)\n""",
            "",
        ),
        ("filters: the millisecond of a bound is read", "1_000_000) // 1000", "1_000_000) // 1000 + 1"),
        (
            "filters: a local time gives no time to begin at",
            """        and getattr(each.value, "tzinfo", None) is not None  # a moment, not a local time\n""",
            "",
        ),
    ),
]
