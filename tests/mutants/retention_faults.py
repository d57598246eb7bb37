"""Faults of the rules up to where retention removes records."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "record_log/retention_rule",
        ("keep stops at the lowest floor", "            target = min(target, floor)\n", "            pass\n"),
        (
            "cleaning goes to the lowest floor",
            "            target = max(target, floor if pointed is None else min(floor, pointed))\n",
            "            pass\n",
        ),
        (
            "cleaning stops at what a dead letter points to",
            "floor if pointed is None else min(floor, pointed)",
            "floor",
        ),
        (
            "no row is not all have finished",
            "    if floor is not None:\n",
            "    if floor is None:\n        floor = log_end_offset\n    if True:\n",
        ),
        (
            "the ceiling goes over floors",
            "min(max(target, asked.ceiling, log_start_offset)",
            "min(max(target, log_start_offset)",
        ),
        ("the log start never goes back", "max(target, asked.ceiling, log_start_offset)", "max(target, asked.ceiling)"),
        (
            "nothing goes beyond the end",
            "min(max(target, asked.ceiling, log_start_offset), log_end_offset)",
            "max(target, asked.ceiling, log_start_offset)",
        ),
        (
            "a compacted topic removes nothing",
            'if config["cleanup.policy"] != "delete":',
            'if config["cleanup.policy"] == "none":',
        ),
        ("a topic keeps only if it says so", 'keep=config.get("retention.unsettled") == "keep"', "keep=True"),
    ),
]
