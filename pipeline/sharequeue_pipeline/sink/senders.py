"""The produce requests of a task: while the gateway appends some, the task makes the next.

Sorted records have no order to keep, so several requests of a task are under way at once. Otherwise one is, and records
of a key arrive in the order of their rows.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple, Self

from sharequeue_pipeline.ahead import in_order
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SinkOptions

AT_ONCE: Final = 4
"""Requests under way of a task that sorts. With the one that waits, five bodies are in memory."""


class Request(NamedTuple):
    """One produce request. `transaction_id`: a part of a transaction; without one, the body's hash ends the key.

    `arrow`: the body is an Arrow stream, and not JSON.
    """

    topic: str
    body: bytes
    key: str
    records: int
    transaction_id: str | None = None
    arrow: bool = False


class Senders:
    """Sends the requests of one task. Use it in a `with` statement."""

    def __init__(self, options: SinkOptions) -> None:
        self._gateway = options.gateway
        self._at_once = AT_ONCE if options.sort and not options.transactional else 1
        self._of_thread = threading.local()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def sent(self, requests: Iterable[Request]) -> Iterator[tuple[Request, bytes]]:
        """Each request with its answer. Raises: PipelineError: the gateway refuses one, or is out of reach."""
        return in_order((partial(self._send, request) for request in requests), self._at_once)

    def _send(self, request: Request) -> tuple[Request, bytes]:
        key = request.key
        if request.transaction_id is None:
            key += hashlib.sha256(request.body).hexdigest()[:24]
        client = self._client()
        produce = client.produce_arrow if request.arrow else client.produce
        return request, produce(request.topic, request.body, key, request.transaction_id)

    def _client(self) -> GatewayClient:
        """The client of this thread."""
        try:
            client: GatewayClient = self._of_thread.client
        except AttributeError:
            client = self._of_thread.client = self._open.enter_context(GatewayClient(self._gateway))
        return client
