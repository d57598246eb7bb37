"""Which batch of a query was committed, as the note of its last commit says."""

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.sink.transactions import WriteTransaction, is_committed


@pytest.mark.parametrize(
    ("note", "label", "expected"),
    [
        (None, "q:7", False),
        ("q:6", "q:7", False),
        ("q:7", "q:7", True),
        ("other:9", "q:7", False),
        ("q:7", None, False),
        ("nightly", "nightly", True),
        ("nightly:9", "nightly:x", False),
    ],
)
def test_which_batch_was_committed(note: str | None, label: str | None, expected: bool) -> None:
    assert is_committed(WriteTransaction("t", note), label) is expected


def test_an_older_checkpoint_is_refused() -> None:
    with pytest.raises(PipelineError, match="batch 9 of this query is committed, and batch 7 runs again"):
        is_committed(WriteTransaction("t", "q:9"), "q:7")
