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
        "share_state/shard",
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
            "    if state.updates < updates_per_snapshot:\n        state_batches",
            "    if state.updates <= updates_per_snapshot:\n        state_batches",
        ),
        (
            "9.4 the higher of two counts stays",
            "        return max(request.delivery_complete_count, state.delivery_complete_count)\n",
            "        return request.delivery_complete_count\n",
        ),
        (
            "16 a read with a higher leader epoch fences the lower ones",
            "    if leader_epoch == state.recorded_leader_epoch:\n        return Decision(result)\n",
            "    return Decision(result)\n",
        ),
    ),
]
