"""What goes wrong in the pipeline, said in one line."""

import os

from sharequeue.protocol.errors import ApiError


class PipelineError(Exception):
    """A fault the user can do something about; the text says what. Spark shows it without a Python traceback."""

    __module__ = "sharequeue"  # what Spark shows before the text

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # Spark's worker asks for it when it reports; then the worker ends


def refused(error: ApiError, url: str) -> PipelineError:
    """The gateway's problem, or that it cannot be reached, in one line."""
    if error.status in (401, 403):
        return PipelineError(f"the gateway at {url} refuses the token: {error.detail}")
    return PipelineError(f"{error.error.code}: {error.detail}")
