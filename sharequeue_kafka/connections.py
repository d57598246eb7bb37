"""Connections to brokers, one for each address and purpose: an answer that waits holds up those behind it."""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any, Final, TypeVar

from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.helpers import create_ssl_context

from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.settings import KafkaSettings

T = TypeVar("T")
Address = tuple[str, int]
LARGE: Final = 256 * 1024
"""An answer of more bytes is decoded in a thread."""
FIRST_PAUSE_S: Final = 0.02
MOST_PAUSE_S: Final = 0.5


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings

    async def token(self) -> str:
        return self._settings.secret()


class Patience:
    """The pauses between the tries of one call, up to a time."""

    def __init__(self, timeout_ms: float = math.inf) -> None:
        self.ends = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._pause_s = FIRST_PAUSE_S

    async def pause(self) -> bool:
        """Pause before the next try. Returns: False, at once, if the time ends before."""
        if asyncio.get_running_loop().time() + self._pause_s > self.ends:
            return False
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)
        return True

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call, and call again after an error that is retriable."""
        while True:
            try:
                return await call()
            except KafkaError as error:
                if not error.retriable or not await self.pause():
                    raise


class Connections:
    """Send requests to addresses, and open what is not open."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._open: dict[tuple[Address, str], asyncio.Task[Any]] = {}
        self.failing: dict[Address, KafkaError] = {}
        """Brokers that did not answer when they were asked last."""

    @property
    def bootstrap(self) -> list[Address]:
        return [(host, port) for host, port, _ in collect_hosts(self._settings.bootstrap_servers)]

    async def send(self, address: Address, request: Any, purpose: str = "") -> Any:
        """Send a request, and return its answer; those of our own forms decoded.

        Raises: KafkaError: NOT_REACHED (nothing was sent), NOT_ANSWERED, UNSUPPORTED_VERSION.
        """
        try:
            answer = await self._send(address, request, purpose)
        except KafkaError as error:
            if error.code < 0:
                self.failing[address] = error
            raise
        self.failing.pop(address, None)
        if not isinstance(answer, BytesIO):
            return answer
        decode = request.ANSWER.decode
        return decode(answer) if len(answer.getbuffer()) < LARGE else await asyncio.to_thread(decode, answer)

    async def _send(self, address: Address, request: Any, purpose: str) -> Any:
        name = f"{address[0]}:{address[1]}"
        connection = await self._connection(address, purpose, name)
        try:
            return await connection.send(request)
        except TimeoutError:
            connection.close()
            raise KafkaError.silent(name, f"for {self._settings.request_timeout_ms} ms") from None
        except errors.IncompatibleBrokerVersion as cause:
            raise KafkaError.of(35, str(cause)) from None
        except (errors.KafkaError, OSError) as cause:
            raise KafkaError.silent(name, cause) from None

    async def _connection(self, address: Address, purpose: str, name: str) -> Any:
        key = (address, purpose)
        opening = self._open.get(key)
        if opening is None or (opening.done() and (opening.exception() or not opening.result().connected())):
            opening = self._open[key] = asyncio.create_task(self._connect(address))
        try:
            return opening.result() if opening.done() else await asyncio.shield(opening)
        except (errors.KafkaError, OSError, TimeoutError) as cause:
            raise KafkaError.unreached(name, cause or type(cause).__name__) from None

    async def _connect(self, address: Address) -> Any:
        settings = self._settings
        encrypted = settings.security_protocol.endswith("SSL")
        context = create_ssl_context(cafile=settings.ca_file or None) if encrypted else None
        return await create_conn(
            *address,
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            ssl_context=context,
            security_protocol=settings.security_protocol,
            max_idle_ms=300_000,
            sasl_mechanism=settings.sasl_mechanism,
            sasl_plain_username=settings.user,
            sasl_plain_password=settings.secret() if settings.security_protocol.startswith("SASL") else None,
            sasl_oauth_token_provider=Token(settings),
        )

    async def close(self) -> None:
        opening, self._open = self._open.values(), {}
        for task in opening:
            task.cancel()
        for task in opening:
            with contextlib.suppress(asyncio.CancelledError, errors.KafkaError, OSError, TimeoutError):
                await (await task).close()
