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
            "log offsets: a start among deleted offsets is lost data",
            "if offset < start and fail_on_data_loss:",
            "if False:",
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
        ("log offsets: an option names no other partition", "        if place not in bounds:\n", "        if False:\n"),
        ("log offsets: an option names every partition", "        if place not in found:\n", "        if False:\n"),
        (
            "log offsets: a partition that was added since is read from 0 on",
            "begun.get(place, 0)",
            "begun.get(place, start)",
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
            "log offsets: the checkpoint of another source is refused",
            """ or "log" not in offset:""",
            ":",
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
]
