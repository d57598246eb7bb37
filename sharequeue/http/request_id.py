"""The id of a request: a client's own, or one that no other request of any process has."""

import itertools
import os
import time
from typing import Final

_request_prefix: Final = f"{os.getpid():x}-{time.time_ns():x}"
_request_numbers: Final = itertools.count(1)


def request_id_from(given: bytes | None) -> str:
    """The id of a request: the given one if it is fit to be echoed, else a new one."""
    if given and len(given) <= 128 and given.isascii() and given.decode().isprintable():
        return given.decode()
    return f"{_request_prefix}-{next(_request_numbers):x}"
