"""The gateways that a program calls: their addresses, its login, and its producers."""

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import TypedDict

from sharequeue.client import Producer
from sharequeue.client.sync import Producer as SyncProducer
from sharequeue_http.calling.login import Token


class LoginOptions(TypedDict, total=False):
    """As the arguments of Producer."""

    token: Token | None
    headers: Mapping[str, str] | None
    ca: str | None


class Gateways:
    """The next of `urls` is called when one gives no answer."""

    def __init__(self, urls: Sequence[str], login: LoginOptions) -> None:
        self.urls = urls
        self.login = login
        self._producers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Producer] = weakref.WeakKeyDictionary()
        self._sync_producer: SyncProducer | None = None

    def producer(self) -> Producer:
        """Return the producer of this event loop."""
        loop = asyncio.get_running_loop()
        producer = self._producers.get(loop)
        if producer is None:
            producer = self._producers[loop] = Producer(self.urls, **self.login)
        return producer

    def sync_producer(self) -> SyncProducer:
        """Return the producer of code without an event loop."""
        if self._sync_producer is None:
            self._sync_producer = SyncProducer(self.urls, **self.login)
        return self._sync_producer

    async def close(self) -> None:
        """Close the producers of this event loop, and the one of code without async."""
        producer = self._producers.pop(asyncio.get_running_loop(), None)
        if producer is not None:
            await producer.close()
        if self._sync_producer is not None:
            self._sync_producer.close()
            self._sync_producer = None
