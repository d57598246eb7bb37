"""Faults of the share coordinator: protocol 9.4, 9.5 and 16."""

from tests.mutants.mutant import coordinator

MUTANTS = [
    *coordinator(
        "share_state/batch_list",
        (
            "9.5 the higher count, then the higher state stays",
            "max((count, state), (kept.delivery_count, kept.delivery_state))",
            "max((count, state), (kept.delivery_count, 0))",
        ),
        (
            "9.5 the higher delivery count stays",
            "max((count, state), (kept.delivery_count, kept.delivery_state))",
            "(count, state)",
        ),
        (
            "9.5 a batch across the start offset is cut",
            "if gone < len(batches) and batches[gone].first_offset < start_offset:",
            "if False:",
        ),
        (
            "9.5 batches that touch are joined in front",
            "disjoint[0].first_offset - 1, key",
            "disjoint[0].first_offset, key",
        ),
        (
            "9.5 the rest of a batch behind a write stays",
            "below[place] = kept.part(at, kept.last_offset)",
            "place += 1",
        ),
        ("9.5 writes that overlap are laid one after another", "left.last_offset >= right.first_offset", "False"),
        (
            "a note of another delivery is not noted",
            "incoming_lives=incoming.delivery_count == count",
            "incoming_lives=True",
        ),
        ("a list never changes", "kept if in_place else list(kept)", "kept"),
    ),
    *coordinator(
        "share_state/rows",
        (
            "a snapshot counts with all its batches",
            "*(_encode(Row(kind=PART, batches=chunk)) for chunk in chunks[1:])",
            "",
        ),
        (
            "a snapshot waits for the bytes of the last one",
            "return state.update_bytes >= state",
            "return 2 * state.update_bytes >= state",
        ),
        ("many updates are not replayed for long", " or state.updates >= MOST_UPDATES", ""),
        (
            "texts of updates join those of the state",
            "[*state.texts, *row.texts] if row.texts",
            "state.texts if row.texts",
        ),
    ),
    *coordinator(
        "share_state/notes",
        ("the bytes of reasons are bounded", "len(kept.encode()) <= left", "True"),
        ("the number of reasons is bounded", "len(known) < MOST_REASONS - 1", "True"),
        (
            "a delay never ends early",
            "-(-note.available_at_ms // DELAY_STEP_MS)",
            "(note.available_at_ms // DELAY_STEP_MS)",
        ),
        ("texts that no batch names are forgotten", "if len(used) == len(texts):", "if True:"),
    ),
    *coordinator(
        "share_state/shard",
        (
            "9.4 a write records a higher state epoch",
            " and state_epoch == state.state_epoch:\n        result",
            ":\n        result",
        ),
        (
            "the next page begins behind this one",
            "return page, texts, batch.first_offset",
            "return page, texts, batch.last_offset + 1",
        ),
    ),
    *coordinator(
        "share_state/notes",
        (
            "what becomes pending keeps the reason of the delivery before",
            "        source = before  # what",
            "        pass  # what",
        ),
        (
            "a pending delivery is settled when the delivery count rises",
            "    transaction_id = source.transaction_id\n",
            "    transaction_id = before.transaction_id\n",
        ),
        (
            "a reason and a delay end when the delivery count rises",
            "        source = kept if kept_lives else NOTHING\n",
            "        source = kept\n",
        ),
        (
            "the larger number of forgiven deliveries stays",
            "max(before.forgiven, after.forgiven)",
            "after.forgiven",
        ),
        (
            "nothing is kept about the deliveries of a finished record",
            "lasting = (0, ()) if finished else (forgiven, earlier)",
            "lasting = (forgiven, earlier)",
        ),
        (
            "a reason is an earlier one when the delivery count has risen, and not before",
            "before.reason is not None and not kept_lives and",
            "before.reason is not None and",
        ),
    ),
    *coordinator(
        "share_state/shard",
        (
            "a write builds on a version that is there",
            " <= version <= version_of(state.snapshot_epoch, state.updates)",
            " <= version",
        ),
        (
            "a snapshot hides whether a version is there",
            "    return version_of(state.snapshot_epoch, 0) <= version",
            "    return 0 <= version",
        ),
        (
            "an earlier start of PostgreSQL may have had more",
            'if request.store not in ("", store) and not',
            'if request.store == "" and not',
        ),
    ),
    *coordinator(
        "share_state/shard",
        (
            "9.2 a repeated initialisation discards nothing",
            "request.start_offset <= state.start_offset",
            "request.start_offset == state.start_offset",
        ),
        (
            "9.2 an initialisation under a higher state epoch replaces the state",
            "state_epoch == state.state_epoch and request.start_offset",
            "request.start_offset",
        ),
        (
            "9.4 the start offset never goes back",
            "        start_offset=max(request.start_offset, state.start_offset),\n",
            "        start_offset=request.start_offset,\n",
        ),
        (
            "9.4 a lower leader epoch is fenced",
            "    if leader_epoch < state.recorded_leader_epoch:\n        return _fenced(request.partition, leader_epoch, state)\n    if state_epoch",
            "    if state_epoch",
        ),
        (
            "9.4 a write records a higher leader epoch",
            "        leader_epoch=leader_epoch if leader_epoch > state.recorded_leader_epoch else -1,\n",
            "",
        ),
        (
            "9.4 the higher of two counts stays",
            "        return max(request.delivery_complete_count, state.delivery_complete_count)\n",
            "        return request.delivery_complete_count\n",
        ),
        (
            "16 a read with a higher leader epoch fences the lower ones",
            "    return Decision(result, row)\n\n\ndef write(",
            "    return Decision(result)\n\n\ndef write(",
        ),
    ),
]
