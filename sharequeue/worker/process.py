"""One process of a worker: the program's event loop, the thread of queues, signals, and the order of the end."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from sharequeue.client.loop_thread import LoopThread
from sharequeue.worker import group_rules, schedules
from sharequeue.worker.app import Worker
from sharequeue.worker.feeding import Feeding
from sharequeue.worker.health import Health
from sharequeue.worker.running import Runner
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger("sharequeue.worker")

DONE: Final = 0
REFUSED: Final = 1
"""The exit code when the service refuses the schedule of a periodic task."""
NOTHING_FITS: Final = 3
"""The exit code when no task fetches any more, because payloads do not fit."""
HUNG: Final = 4
"""The exit code when half of a task's hands are kept by functions that do not end: start the process again."""
PARENT: Final = "SHAREQUEUE_WORK_PARENT"
"""The variable that names the supervisor's process id. A process whose supervisor is gone stops."""
LOOK_S: Final = 0.5
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Process:
    """The tasks of an app in one process."""

    def __init__(self, app: Worker, *, grace_s: float) -> None:
        self._app = app
        self._grace_s = grace_s
        self._feedings: list[Feeding] = []
        self._stop = asyncio.Event()
        self._exit_code = DONE
        self._prepared: asyncio.Task[None]
        """Sets the retries of groups, and makes the schedules."""
        self._retries_set = asyncio.Event()

    async def run(self, health_port: int | None = None) -> int:
        """Run until `stop`. Returns: the exit code."""
        runner = Runner(asyncio.get_running_loop())
        queues = LoopThread()
        health = None if health_port is None else Health(health_port, self._feedings)
        try:
            self._feedings += await asyncio.wrap_future(queues.later(self._connect(runner)))
            fed: asyncio.Future[None] = asyncio.wrap_future(queues.later(self._feed()))
            stopped: asyncio.Future[bool] = asyncio.ensure_future(self._stop.wait())
            ends: list[asyncio.Future[Any]] = [fed, stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            log.info("stopping: records that were not begun go back, %g s for the others", self._grace_s)
            await asyncio.wrap_future(queues.later(self._finish()))
            await fed  # its failure is the program's
        finally:
            queues.stop()
            if health is not None:
                health.close()
            await self._app.close()
        return self._exit_code

    def stop(self) -> None:
        """Stop with grace; the second time, end the grace."""
        if self._stop.is_set():
            for feeding in self._feedings:
                feeding.hurried = True
        self._stop.set()

    # In the thread of queues

    async def _connect(self, runner: Runner) -> list[Feeding]:
        app, options = self._app, self._app.gateways.login
        login = Login(options.get("token"), options.get("headers"))
        client = Client(app.gateways.urls, login=login, ca=options.get("ca"))
        self._prepared = asyncio.create_task(self._prepare(client))
        return [Feeding(tasks, runner, app.lock_duration_ms) for tasks in app.queues()]

    async def _prepare(self, client: Client) -> None:
        groups = dict.fromkeys(task.group for task in self._app.tasks.values()) if self._app.set_retries else ()
        try:
            for group in groups:
                await group_rules.apply(client, group)
            self._retries_set.set()
            await schedules.put(client, self._app.tasks.values())
        except ApiError as error:
            log.error("%s", error.detail)
            self._exit_code = REFUSED
        finally:
            self._retries_set.set()  # or the worker stops
            await client.close()

    async def _feed(self) -> None:
        parent = str(os.getppid())
        await self._retries_set.wait()
        feeding = [asyncio.create_task(each.run()) for each in self._feedings]
        while True:
            done, _ = await asyncio.wait(feeding, timeout=LOOK_S, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            if self._exit_code == REFUSED:
                return
            if len(done) == len(feeding) or os.environ.get(PARENT, parent) != str(os.getppid()):
                return
            if all(each.stopped for each in self._feedings):
                self._exit_code = NOTHING_FITS
                return
            if any(each.hung for each in self._feedings):
                log.error("half of a task's hands are kept by functions that do not end: the process ends")
                self._exit_code = HUNG
                return

    async def _finish(self) -> None:
        self._prepared.cancel()
        for feeding in self._feedings:
            feeding.stop()
        await asyncio.gather(*(feeding.finish(self._grace_s) for feeding in self._feedings))


def run(app: Worker, *, grace_s: float, health_port: int | None = None) -> int:
    """Run an app in this process until SIGTERM or Ctrl-C. Returns: the exit code."""

    async def main() -> int:
        process = Process(app, grace_s=grace_s)
        with _signals(asyncio.get_running_loop(), process.stop):
            return await process.run(health_port)

    return asyncio.run(main())


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> Iterator[None]:
    """Within `with`, the two signals call a function in the event loop; those of another thread go nowhere."""
    numbers = SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(told)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
