"""Faults of the audit: of a stretch of the log, and of the stored state of a share-partition."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "jobs/log_check",
        (
            "log audit: batches below the log start may be missing",
            "    expected = max(begin, log_start_offset)\n",
            "    expected = begin\n",
        ),
        (
            "log audit: batches before the stretch are not looked for",
            "    expected = max(begin, log_start_offset)\n",
            "    expected = log_start_offset\n",
        ),
        ("log audit: a batch has an offset", "        if size < 1:\n", "        if size < 0:\n"),
        (
            "log audit: a record count is never negative",
            "elif not 0 <= batch.record_count <= size:",
            "elif batch.record_count > size:",
        ),
        (
            "log audit: a batch has no more records than offsets",
            "elif not 0 <= batch.record_count <= size:",
            "elif not 0 <= batch.record_count:",
        ),
        (
            "log audit: an overlap of one offset is a fault",
            "batch.base_offset <= before.last_offset",
            "batch.base_offset < before.last_offset",
        ),
        (
            "log audit: a hole behind the stretch is not named",
            "batch.base_offset > expected and expected < end",
            "batch.base_offset > expected",
        ),
        ("log audit: a hole ends with the stretch", "{min(batch.base_offset, end) - 1}", "{batch.base_offset - 1}"),
        (
            "log audit: a batch within another makes no hole",
            "        expected = max(expected, batch.last_offset + 1)\n",
            "        expected = batch.last_offset + 1\n",
        ),
        (
            "log audit: the last offset may not be missing",
            "    if expected < end:\n",
            "    if expected < end - 1:\n",
        ),
        (
            "log audit: a batch of which no record can be read is a fault",
            "counted.get(batch.base_offset, 0)",
            "counted.get(batch.base_offset, batch.record_count)",
        ),
        (
            "log audit: the batch at the log start is counted",
            "batch.base_offset >= log_start_offset",
            "batch.base_offset > log_start_offset",
        ),
        ("log audit: batches below the log start are not counted", "batch.base_offset >= log_start_offset and", ""),
        ("log audit: records of no batch are named", "    if counted.get(-1):\n", "    if False:\n"),
    ),
    *pipeline(
        "jobs/state_check",
        (
            "state audit: a row that cannot be read is named",
            "        if row.fault is not msgspec.UNSET:\n",
            "        if False:\n",
        ),
        (
            "state audit: a tombstone ends the state",
            "            state, begun = None, True\n",
            "            begun = True\n",
        ),
        (
            "state audit: an update after a tombstone is one of a deleted snapshot",
            "            state, begun = None, True\n",
            "            state = None\n",
        ),
        (
            "state audit: a snapshot has a new number",
            "if row.snapshot_epoch <= state.snapshot_epoch:",
            "if row.snapshot_epoch < state.snapshot_epoch:",
        ),
        (
            "state audit: the state epoch never falls",
            "    if row.state_epoch < state.state_epoch:\n",
            "    if False:\n",
        ),
        (
            "state audit: a reset of the offsets may go back",
            "    if row.state_epoch == state.state_epoch and row.start_offset",
            "    if row.start_offset",
        ),
        (
            "state audit: an initialisation may set any start offset",
            " and not initialised:",
            ":",
        ),
        (
            "state audit: a snapshot of a leader does not go back",
            "initialised = row.leader_epoch == 0 and not row.state_batches",
            "initialised = not row.state_batches",
        ),
        (
            "state audit: a snapshot with batches does not go back",
            "initialised = row.leader_epoch == 0 and not row.state_batches",
            "initialised = row.leader_epoch == 0",
        ),
        (
            "state audit: an update behind a snapshot names this snapshot",
            "written_beside = row.seq < snapshot_seq and ",
            "written_beside = ",
        ),
        (
            "state audit: an update beside a snapshot names the one before",
            "row.seq < snapshot_seq and row.snapshot_epoch == state.snapshot_epoch - 1",
            "row.seq < snapshot_seq",
        ),
        (
            "state audit: an update may leave the start offset",
            "state.start_offset if row.start_offset == -1 else row.start_offset",
            "row.start_offset",
        ),
        (
            "state audit: an update does not move the start offset back",
            "    if start_offset < state.start_offset:\n",
            "    if False:\n",
        ),
        (
            "state audit: an update may leave the leader epoch",
            "state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch",
            "row.leader_epoch",
        ),
        (
            "state audit: the higher delivery count wins, then the state",
            "count, state = max((batch[3], batch[2]) for batch in active)",
            "state, count = max((batch[2], batch[3]) for batch in active)",
        ),
        ("state audit: the last offset of a batch counts", "if batch[1] >= first]", "if batch[1] > first]"),
        (
            "state audit: the start offset itself has a state",
            "if first < start_offset or not active:",
            "if first <= start_offset or not active:",
        ),
        (
            "state audit: batches below the start offset are dropped",
            "if first < start_offset or not active:",
            "if not active:",
        ),
        ("state audit: batches with a gap stay apart", "laid[-1][1] + 1 == first and laid", "laid"),
        ("state audit: other states stay apart", " and laid[-1][2:] == (state, count):", ":"),
        (
            "state audit: an error for a topic that is gone is no difference",
            "        if audited.topic is not msgspec.UNSET:\n            yield",
            "        if True:\n            yield",
        ),
        ("state audit: an error is a difference", "    if answer.error_code:\n", "    if False:\n"),
        (
            "state audit: nothing stored is answered as nothing",
            "stored = (0, 0, -1, -1) if state is None",
            "stored = (0, 0, 0, 0) if state is None",
        ),
        (
            "state audit: the answered leader epoch counts",
            "else (state[1], state[2], state[3]",
            "else (state[1], answer.leader_epoch, state[3]",
        ),
        (
            "state audit: without a start offset there are no batches",
            "        if state.state_batches:\n            yield",
            "        if False:\n            yield",
        ),
        ("state audit: a batch does not end before it begins", "        if first > last:\n", "        if False:\n"),
        (
            "state audit: an overlap of one offset is a fault",
            "        elif first < expected:\n",
            "        elif first < expected - 1:\n",
        ),
        (
            "state audit: an acquired state is never stored",
            "if delivery_state not in PERSISTED or count < 0:",
            "if count < 0:",
        ),
        (
            "state audit: a delivery count is never negative",
            "if delivery_state not in PERSISTED or count < 0:",
            "if delivery_state not in PERSISTED:",
        ),
        (
            "state audit: a record in two batches is finished once",
            "last - max(first, expected) + 1)",
            "last - first + 1)",
        ),
        (
            "state audit: all batches before count for an overlap",
            "        expected = max(expected, last + 1)\n",
            "        expected = last + 1\n",
        ),
        (
            "state audit: no finished record needs no count",
            "terminal > max(state.delivery_complete_count, 0)",
            "terminal > state.delivery_complete_count",
        ),
        (
            "state audit: archived records are finished, too",
            "(DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)",
            "(DeliveryState.ACKNOWLEDGED,)",
        ),
        (
            "state audit: the start offset may be the log end",
            "    if state.start_offset > end:\n",
            "    if state.start_offset >= end:\n",
        ),
        (
            "state audit: all records to the log end may be finished",
            "state.delivery_complete_count > end - state.start_offset:",
            "state.delivery_complete_count >= end - state.start_offset:",
        ),
        (
            "state audit: no more records are finished than there are",
            "state.delivery_complete_count > end - state.start_offset:",
            "state.delivery_complete_count > end:",
        ),
        ("state audit: a batch ends before the log end", "if batch[1] >= end]", "if batch[1] > end]"),
        (
            "state audit: without a log end nothing lies behind it",
            "state.start_offset < 0 or audited.log_end_offset is msgspec.UNSET:",
            "state.start_offset < 0:",
        ),
        ("state audit: the newest row is the last one", "return audited.rows[-1].seq", "return audited.rows[0].seq"),
    ),
]
