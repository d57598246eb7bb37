"""The batches that a transaction settles are stored as lines of JSON, and read line by line."""

import msgspec
import pytest
from sharequeue_gateway.record_log.transactions.settlements import BATCHES_OF_A_LINE, SettledLines, settled_of

from sharequeue.protocol.types import AcknowledgeType, SettledBatch


def settled(count: int) -> list[SettledBatch]:
    return [
        SettledBatch(offset, offset, AcknowledgeType.REJECT, "m1", 1, f"line\nbreak {offset}")
        for offset in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, BATCHES_OF_A_LINE, BATCHES_OF_A_LINE + 1, 3 * BATCHES_OF_A_LINE + 7])
def test_lines_say_what_they_were_given(count: int) -> None:
    lines = SettledLines(settled(count // 2))
    lines.add(settled(count)[count // 2 :])
    assert list(lines) == list(settled_of(lines.encoded())) == settled(count)


def test_a_damaged_line_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        list(settled_of(SettledLines(settled(1)).encoded() + b'\n[{"new":1}]'))
