"""Starts services whose PostgreSQL and Redis drivers fail inside, once a file is there.

Each statement fails once before it is sent, and once when it is done and its answer is lost.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sharequeue.stack.stack import ServiceProcess

FAULTY = """
import collections, functools, os, re, runpy, sys
import asyncpg, redis.asyncio

module, begun = sys.argv[1:]
times = collections.Counter()

def failing(method, kind, before, behind):
    @functools.wraps(method)
    async def call(self, *arguments, **named):
        name = kind or re.sub(r"\\s+|\\d+", " ", arguments[0]).strip()[:100]
        times[name] += os.path.exists(begun)
        turn = times[name]
        if before(turn):
            times[name] += 1
        else:
            answer = await method(self, *arguments, **named)
            if not behind(turn):
                return answer
        if kind:
            await self.disconnect(nowait=True)  # as redis-py does then
        place = f"planted {'before' if before(turn) else 'behind'} {name}"
        print(place, file=sys.stderr, flush=True)
        raise AttributeError(place)
    return call

for name in ("execute", "executemany", "fetch", "fetchrow", "fetchval"):
    method = getattr(asyncpg.Connection, name)
    setattr(asyncpg.Connection, name, failing(method, None, lambda turn: turn == 1, lambda turn: turn == 3))
for name in ("send_packed_command", "read_response"):
    method = getattr(redis.asyncio.Connection, name)
    wrapped = failing(method, name, lambda turn: turn % 200 == 99, lambda turn: turn % 200 == 199)
    setattr(redis.asyncio.Connection, name, wrapped)

sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def plant(monkeypatch: pytest.MonkeyPatch, begun: Path) -> None:
    """From now on services start with such drivers. `begun`: the file."""

    def popen(command: Sequence[str], **options: Any) -> Any:
        return subprocess.Popen([sys.executable, "-P", "-c", FAULTY, command[-1], str(begun)], **options)

    monkeypatch.setattr(ServiceProcess, "popen", staticmethod(popen))
