"""The id of a request: the client's own, or a new one that is unique over all processes."""

import itertools
import os
import time
from typing import Final

_request_prefix: Final = f"{os.getpid():x}-{time.time_ns():x}"
_request_numbers: Final = itertools.count(1)


def request_id_from(given: bytes | None) -> str:
    """The given id if it can be echoed in a header, else a new one."""
    if given and len(given) <= 128 and given.isascii() and given.decode().isprintable():
        return given.decode()
    return f"{_request_prefix}-{next(_request_numbers):x}"
