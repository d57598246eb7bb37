"""Faults of the pipeline as one line of text."""

import os

from sharequeue.protocol.errors import ApiError


class PipelineError(Exception):
    """A fault that the user can mend; the text says how. Spark shows it without a Python traceback."""

    __module__ = "sharequeue"  # what Spark shows before the text

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Spark's worker reads it when it reports the fault, and then ends


def refused(error: ApiError, url: str) -> PipelineError:
    """A gateway's problem document, or a failure to reach the gateway, as one line."""
    if error.status in (401, 403):
        return PipelineError(f"the gateway at {url} refuses the token: {error.detail}")
    return PipelineError(f"{error.error.code}: {error.detail}")


def data_loss(topic: str, partition: int, first_offset: int, last_offset: int) -> PipelineError:
    """The fault of a read that must not lose records, and finds that some are gone."""
    return PipelineError(
        f"{topic}-{partition}: the offsets {first_offset} to {last_offset} were deleted before they were read; "
        "set failOnDataLoss=false to read on without them"
    )
