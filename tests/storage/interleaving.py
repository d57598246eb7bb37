"""Runs operations on PostgreSQL statement by statement, in an order that the test chooses.

Each actor has a connection of its own, and stops before each statement, each commit and each call to a coordinator. The
explorer lets one actor go one step, until it stops again, has ended, or waits for a lock that another one holds.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

LOOK_S = 0.002
WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)"

Operation = Callable[["Actor"], Awaitable[None]]


class SteppedConnection:
    """An asyncpg connection that asks its actor before each statement and each commit."""

    def __init__(self, connection: Any, actor: "Actor") -> None:
        self._connection = connection
        self._actor = actor

    async def execute(self, *arguments: Any) -> Any:
        await self._actor.step()
        return await self._connection.execute(*arguments)

    async def fetch(self, *arguments: Any) -> Any:
        await self._actor.step()
        return await self._connection.fetch(*arguments)

    async def fetchval(self, *arguments: Any) -> Any:
        await self._actor.step()
        return await self._connection.fetchval(*arguments)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self._connection.transaction():
            yield
            await self._actor.step()


class Actor:
    """One process that runs an operation."""

    def __init__(self, name: str, connection: Any) -> None:
        self.name = name
        self._connection = connection
        self._pid: int = connection.get_server_pid()
        self._go = asyncio.Event()
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.steps = 0

    async def query(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Run a function with the stepped connection, as `LogDatabase.query` does with a pooled one."""
        return await function(SteppedConnection(self._connection, self), *arguments)

    async def step(self) -> None:
        """A point at which the actor may be paused."""
        self._stopped.set()
        await self._go.wait()
        self._go.clear()
        self.steps += 1

    async def begin(self, operation: Operation) -> None:
        """Start an operation; it stops at its first step."""
        self.steps = 0
        self._go.clear()
        self._stopped.clear()
        self._task = asyncio.create_task(self._run(operation))
        await self._stopped.wait()

    async def _run(self, operation: Operation) -> None:
        try:
            await operation(self)
        finally:
            self._stopped.set()

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def advance(self, monitor: Any) -> bool:
        """One step. Returns: whether it was made; False: the actor has ended, or it still waits for a lock."""
        if not await self._settled(monitor) or self.ended:
            return False
        self._stopped.clear()
        self._go.set()
        await self._settled(monitor)
        return True

    async def _settled(self, monitor: Any) -> bool:
        """Wait until the actor has stopped. Returns: False: it waits for a lock instead."""
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._stopped.wait()
            except TimeoutError:
                if await monitor.fetchval(WAITS, self._pid):
                    return False
        await asyncio.sleep(0)  # a task that has just ended is done then
        return True

    async def finish(self) -> None:
        """Raises: what the operation raised."""
        if self._task is not None and not self._task.cancelled():
            await self._task

    async def cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Explorer:
    """Some actors, a connection that looks, and a check that runs after each step."""

    def __init__(self, actors: Sequence[Actor], monitor: Any, check: Callable[[str], Awaitable[None]]) -> None:
        self._actors = actors
        self._monitor = monitor
        self._check = check
        self.trace: list[str] = []
        """The actors in the order of their steps."""

    async def preempt(self, operations: Sequence[Operation], at: int, *, crash: bool = False) -> bool:
        """The first operation is paused after `at` steps, the others run, then it goes on.

        Args:
            crash: it does not go on: its process is dead, and its transaction is rolled back.
        Returns: whether it has more steps.
        """
        first, *others = self._actors[: len(operations)]
        async with self._begun(operations):
            for _ in range(at):
                if not await self._advance(first):
                    break
            more = not first.ended
            *between, last = others
            await self._drain(between)
            if crash:
                await first.cancel()
            await self._drain([first, *between])
            await self._drain([last])
        return more

    async def shuffle(self, operations: Sequence[Operation], chance: random.Random) -> None:
        """The operations take turns at random."""
        actors = self._actors[: len(operations)]
        async with self._begun(operations):
            while alive := [actor for actor in actors if not actor.ended]:
                for actor in chance.sample(alive, len(alive)):
                    if await self._advance(actor):
                        break

    @asynccontextmanager
    async def _begun(self, operations: Sequence[Operation]) -> AsyncIterator[None]:
        self.trace = []
        actors = self._actors[: len(operations)]
        try:
            for actor, operation in zip(actors, operations, strict=True):
                await actor.begin(operation)
            yield
            for actor in actors:
                await actor.finish()
            await self._check(" ".join(self.trace))
        finally:
            for actor in actors:
                await actor.cancel()

    async def _drain(self, actors: Sequence[Actor]) -> None:
        """Let actors go on, one after the other, until each has ended or waits for one that is not among them."""
        moved = True
        while moved:
            moved = False
            for actor in actors:
                while await self._advance(actor):
                    moved = True

    async def _advance(self, actor: Actor) -> bool:
        moved = await actor.advance(self._monitor)
        if moved:
            self.trace.append(actor.name)
            await self._check(" ".join(self.trace))
        return moved


@asynccontextmanager
async def actors(database_url: str, names: Sequence[str]) -> AsyncIterator[tuple[list[Actor], Any]]:
    """Actors with connections of their own, and one more connection."""
    connections = [await asyncpg.connect(database_url) for _ in range(len(names) + 1)]
    try:
        yield [Actor(name, connection) for name, connection in zip(names, connections, strict=False)], connections[-1]
    finally:
        for connection in connections:
            await connection.close()
