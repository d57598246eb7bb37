"""Decides when the next shared request begins: a commit of appends, a pipeline of locks, a request of state writes.

What comes in while one of them is under way gathers for the next one. Its end answers several clients at once, and they
call again at once. If the next one began in the same moment, it would go with those that were quickest, and the others
would need one of their own.
"""

import asyncio


async def let_others_join() -> None:
    """Return when what the sockets hold now was read, and has run up to its first wait.

    Two turns of uvloop's event loop do that: one reads the sockets, and the next one runs the tasks that this made. Call
    it only if several shared the work that has just ended: a client alone is not kept waiting.
    """
    await asyncio.sleep(0)
    await asyncio.sleep(0)
