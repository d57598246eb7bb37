"""Faults of the pipeline as one line of text."""

import os

from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed


class PipelineError(Exception):
    """A fault that the user can mend; the text says how. Spark shows it without a Python traceback.

    `code`: Kafka's name of the error that the gateway answered, "" for other faults.
    """

    __module__ = "sharequeue"  # what Spark shows before the text

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(" ".join(text.split()))
        self.code = code
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Spark's worker reads it when it reports the fault, and then ends


class KeyUsed(PipelineError):
    """Another request has used the idempotency key. `batches`: where its records were appended."""

    def __init__(self, text: str, code: str, batches: list[ProducedBatch]) -> None:
        super().__init__(text, code)
        self.batches = batches


def refused(error: ApiError, url: str) -> PipelineError:
    """A gateway's problem document, or a failure to reach the gateway, as one line."""
    code = error.code
    if isinstance(error, AuthenticationFailed):
        return PipelineError(f"the gateway at {url} refuses the token: {error.detail}", code)
    text = f"{code}: {error.detail}"
    first = [] if error.problem is None else error.problem.first_batches
    return KeyUsed(text, code, first) if first else PipelineError(text, code)


def data_loss(topic: str, partition: int, first_offset: int, last_offset: int) -> PipelineError:
    """The fault of a read that must not lose records, and finds that some are gone."""
    return PipelineError(
        f"{topic}-{partition}: the offsets {first_offset} to {last_offset} were deleted before they were read; "
        "set failOnDataLoss=false to read on without them"
    )
