"""The answer of readRecords as runs of stored records, which costs nothing for each record."""

from collections.abc import Iterable
from typing import Final

from sharequeue.protocol.apis import ARROW_STREAM, RECORD_RUNS
from sharequeue.protocol.record_runs import BOUNDS, Bounds, run_parts
from sharequeue_gateway.http.answers import media_types
from sharequeue_gateway.record_log.record_batch import RecordBatch

CONTENT_TYPE: Final = (b"content-type", RECORD_RUNS.encode())


def runs_wanted(accept: str | None) -> bool:
    """Whether the header Accept names the type, and gives every other form that it names less weight."""
    if accept is None or RECORD_RUNS not in accept.lower():
        return False
    weights = media_types.qualities(accept)
    others = (ARROW_STREAM, "application/json")
    return weights[RECORD_RUNS] > max(weights.get(kind, 0.0) for kind in others)


def record_runs(cuts: Iterable[tuple[RecordBatch, int, int]], bounds: Bounds) -> bytes:
    """The answer's body. `cuts`: batches, each with the first and the last offset to send."""
    parts: list[bytes | memoryview] = [BOUNDS.pack(*bounds)]
    for batch, first, last in cuts:
        run = batch.run(first, last)
        if run is not None:
            parts += run_parts(*run)
    return b"".join(parts)
