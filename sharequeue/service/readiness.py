"""Checks for `/readyz`: side by side, each with a deadline, none more than once at a time.

A check that misses its deadline keeps running. The next request waits for it instead of starting another.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sharequeue_http.forms.errors import ApiError

CHECK_S: Final = 0.5
ROUNDABOUT_CHECK_S: Final = 0.6
"""For a check of a service that itself checks others."""


class Check:
    """One dependency. `ask` raises ApiError if the dependency is unwell, and has a deadline of its own."""

    def __init__(self, ask: Callable[[], Awaitable[None]], seconds: float = CHECK_S) -> None:
        self._ask = ask
        self._seconds = seconds
        self._asking: asyncio.Task[str | None] | None = None

    async def fault(self) -> str | None:
        """Return what is wrong, or None."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._fault())
        await asyncio.wait([self._asking], timeout=self._seconds)
        return self._asking.result() if self._asking.done() else f"does not answer within {self._seconds} s"

    async def _fault(self) -> str | None:
        try:
            await self._ask()
        except ApiError as error:
            return error.detail
        return None


async def faults(**checks: Check) -> dict[str, str]:
    """Return what is wrong, by the names of the checks that found something."""
    found = await asyncio.gather(*(check.fault() for check in checks.values()))
    return {name: fault for name, fault in zip(checks, found, strict=True) if fault is not None}
