"""The errors of the client itself. `ApiError`, a problem of the service, is in `sharequeue.protocol.errors`."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self


class IllegalState(RuntimeError):
    """The program used the client after `close`, or in an order that its acknowledgement mode does not allow."""


class OneLoop:
    """An async object that stays in the event loop of its first use: its connections do."""

    _loop: asyncio.AbstractEventLoop | None = None

    def _check_loop(self) -> None:
        """Raises: IllegalState: this is another loop."""
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise IllegalState(
                f"this {type(self).__name__} belongs to another event loop: make one in each asyncio.run, and close it there"
            )


class Closing(OneLoop):
    """An async object that `async with` closes."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        raise NotImplementedError


class ValueUndecodable(ValueError):
    """A record's value is JSON that Python has no value for: a number such as 1e400, or one of 5,000 digits. Or it is
    not of the consumer's `value_type`.

    `Record.json` has its bytes, and any outcome may be chosen.
    """


class ValueTooDeep(ValueUndecodable):
    """As `ValueUndecodable`: the value nests some hundred levels deep."""


class AcknowledgementFailure(NamedTuple):
    """A run of offsets (`last_offset` inclusive) whose acknowledgement was not applied.

    `code` is Kafka's name of the error: INVALID_RECORD_STATE if the lock had ended. `retriable`: the cause may pass;
    the group delivers the record again when its lock ends.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    type: str
    code: str
    detail: str
    retriable: bool = False


class AcknowledgementError(Exception):
    """Acknowledgements were not applied: `failures` has one entry for each. The others of the call were applied."""

    def __init__(self, failures: Sequence[AcknowledgementFailure]) -> None:
        self.failures = tuple(failures)
        shown = "; ".join(
            f"{failure.topic}-{failure.partition} {failure.first_offset}..{failure.last_offset} "
            f"({failure.type}): {failure.code}: {failure.detail}"
            for failure in self.failures[:3]
        )
        more = f"; and {len(self.failures) - 3} more" if len(self.failures) > 3 else ""
        super().__init__(f"{len(self.failures)} acknowledgements were not applied: {shown}{more}")
