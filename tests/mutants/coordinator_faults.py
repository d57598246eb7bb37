"""Faults of the share coordinator: protocol 9.4, 9.5 and 16."""

from tests.mutants.mutant import coordinator

MUTANTS = [
    *coordinator(
        "share_state/state_batches",
        (
            "9.5 the higher delivery count wins",
            "heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))",
            "heapq.heappush(covering, (batch.delivery_count, -batch.delivery_state, batch.last_offset))",
        ),
        (
            "9.5 at one count the higher state wins",
            "heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))",
            "heapq.heappush(covering, (-batch.delivery_count, batch.delivery_state, batch.last_offset))",
        ),
        (
            "9.5 batches below the start offset are dropped",
            "            if batch.last_offset >= start_offset\n",
            "",
        ),
        (
            "9.5 only batches that touch are joined",
            "            if same and last.last_offset + 1 == batch.first_offset:\n",
            "            if same:\n",
        ),
    ),
    *coordinator(
        "share_state/batch_list",
        (
            "9.5 of two batches at one offset the higher count, then the higher state stays",
            "            outcome = max(outcome, below.outcome)\n",
            "            outcome = max(outcome, below.outcome // STATES * STATES)\n",
        ),
        (
            "9.5 batches that touch are joined across blocks",
            "bisect_left(old, patches[place].first_offset - 1, lo=done, key=_block_last)",
            "bisect_left(old, patches[place].first_offset, lo=done, key=_block_last)",
        ),
        (
            "9.5 the rest of a batch behind a patch stays",
            "    if cut is not None:\n        _add(laid, cut)\n        position += 1\n",
            "    if cut is not None:\n        position += 1\n",
        ),
        (
            "9.5 a batch across the start offset is cut",
            "    if kept[0].first_offset < start_offset:\n            kept[0] =",
            "    if kept[0].last_offset < start_offset:\n            kept[0] =",
        ),
        (
            "batches with different notes are not joined",
            "            and before.note == batch.note\n",
            "",
        ),
        (
            "a note of another delivery is not noted",
            "incoming_lives=patch.note_count == count,",
            "incoming_lives=True,",
        ),
        (
            "blocks are of equal length, so that a full one does not shed single batches",
            "length = -(-len(batches) // -(-len(batches) // BLOCK))",
            "length = BLOCK",
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
        "share_state/notes",
        (
            "a delay never ends early",
            "steps(annotation.available_at_ms) * STEP_MS or None",
            "(annotation.available_at_ms or 0) // STEP_MS * STEP_MS or None",
        ),
        ("the number of reasons is bounded", "len(texts) < MOST_REASONS - 1 and ", ""),
        ("the bytes of reasons are bounded", " and size + added <= MOST_REASON_BYTES - len(TOO_MANY)", ""),
    ),
    *coordinator(
        "share_state/rows",
        (
            "a snapshot waits for half the bytes of the last one",
            "    share = 1 if state.updates >= MANY_UPDATES else 4\n",
            "    share = 0\n",
        ),
        ("many updates are not replayed for long", "share = 1 if state.updates >= MANY_UPDATES else 4", "share = 4"),
        ("a large snapshot covers what it holds alone", "updates=state.updates - part.updates,", "updates=0,"),
        ("no large snapshot is due for nothing", "    if not state.rows and state.large:\n", "    if False:\n"),
        (
            "a snapshot of changes is not larger than a part of its parts",
            "changed <= min(base.size // share, MOST_CHANGED) and ",
            "",
        ),
        (
            "a snapshot that was stored whole serves until as much was written again",
            "SHARE_SOON if base.written < base.size else SHARE",
            "SHARE",
        ),
        ("a snapshot is stored whole again in the end", " and base.written <= times * base.size", ""),
        (
            "reasons that no record has are forgotten while new ones have no room",
            "BASE_TIMES_WITHOUT_ROOM if TOO_MANY in reasons else BASE_TIMES",
            "BASE_TIMES",
        ),
    ),
    *coordinator(
        "share_state/changes",
        (
            "batches that an update removed are gone from the snapshot",
            "[batch.first_offset for batch in old if id(batch) not in kept]",
            "[]",
        ),
        (
            "batches behind the last block are kept",
            "(block[0].first_offset for block in before.blocks[1:]), BEHIND_ALL]",
            "(block[0].first_offset for block in before.blocks[1:]), before.blocks[-1][-1].last_offset]",
        ),
    ),
    *coordinator(
        "share_state/row_format",
        ("pending deliveries are stored", "    if not any(pending):\n", "    if True:\n"),
        ("a row of a snapshot names its transactions", "or row.transactions or row.changes:", "or row.changes:"),
        ("a row names the changes since its parts", "or row.transactions or row.changes:", "or row.transactions:"),
        (
            "changes are since the parts without what the start offset has passed",
            "with_changes(whole.from_start(row.start_offset), changes)",
            "with_changes(whole, changes)",
        ),
        (
            "no part with many earlier reasons is larger than 1 MiB",
            "weight = 1 if batch.note is None else 1 + len(batch.note.earlier)",
            "weight = 1",
        ),
        ("no part is larger than 1 MiB", "BATCHES_PER_PART: Final = 10_000", "BATCHES_PER_PART: Final = 100_000"),
    ),
    *coordinator(
        "share_state/columns",
        ("pending deliveries of parts are kept", "numbers.setdefault(name, len(numbers)) + 1 for", "0 for"),
        (
            "a note belongs to its batch",
            "[0 if batch.note is None else 1 for batch in batches]",
            "[1 for batch in batches]",
        ),
        ("earlier reasons belong to one note", "found += (place, len(reasons))", "found += (0, len(reasons))"),
        ("earlier reasons come back", "earlier.get(place, ())", "()"),
        ("a page has at least one batch, and ends", "        if left <= 0:\n", "        if left < 0:\n"),
        (
            "the next page begins behind this one",
            "next_offset = batch.first_offset\n",
            "next_offset = batch.last_offset + 1\n",
        ),
        ("new texts count", "left -= len(note.reason.text)", "left -= 0"),
    ),
    *coordinator(
        "share_state/shard",
        (
            "a snapshot of changes counts what was written since its parts",
            ", written=base.written + begun.update_bytes",
            "",
        ),
        (
            "a large snapshot of a state that was replaced does not count",
            "    return Decision(done(0), row if same else None)\n",
            "    return Decision(done(0), row if state is not None else None)\n",
        ),
        (
            "9.4 the start offset never goes back",
            "    start_offset = max(request.start_offset, state.start_offset)\n    count",
            "    start_offset = request.start_offset\n    count",
        ),
        (
            "9.4 a lower leader epoch is fenced",
            "    if leader_epoch < state.recorded_leader_epoch:\n        return _fenced(request.partition, leader_epoch, state)\n    if state_epoch",
            "    if state_epoch",
        ),
        (
            "9.4 a snapshot follows a number of updates",
            "not snapshot_due(state, updates_per_snapshot) or state.large\n    if update and",
            "state.updates <= updates_per_snapshot or state.large\n    if update and",
        ),
        (
            "9.4 a write records a higher leader epoch",
            "            leader_epoch=raised,\n",
            "",
        ),
        (
            "9.4 a write records a higher state epoch",
            "    if update and state_epoch == state.state_epoch:\n",
            "    if update:\n",
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
