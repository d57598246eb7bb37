"""What `/readyz` tells of open transactions."""

import pytest
from sharequeue_gateway.producing.log_metrics import told
from sharequeue_gateway.record_log.transactions.open_store import OpenNow


@pytest.mark.parametrize("now", [OpenNow(0), OpenNow(3, "t1", None, 60_000, 1)], ids=["none", "young"])
def test_nothing_is_told_before_a_minute(now: OpenNow) -> None:
    assert told(now, names=True) is None


def test_the_oldest_is_named_after_a_minute() -> None:
    oldest = OpenNow(3, "t1", "billing", 61_900, 7)
    sentence = told(oldest, names=True)
    assert sentence is not None
    for part in ("t1 of 'billing'", "61 s", "7 partitions", "/terminate"):
        assert part in sentence
    assert "billing" not in str(told(oldest, names=False)), "a caller without a key learns no name"
