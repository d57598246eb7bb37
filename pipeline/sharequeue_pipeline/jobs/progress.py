"""A line on stderr now and then that says how far a job's tasks are."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

EVERY_S: Final = 5.0


class Progress:
    """Says so while its block runs, as long as the number of finished tasks grows."""

    def __init__(self, spark: SparkSession, say: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._say = say
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="sharequeue progress")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        said = (0, 0)
        while not self._over.wait(self._every_s):
            stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            tasks = sum(stage.numTasks for stage in stages if stage is not None)
            if tasks and (done, tasks) != said:
                said = done, tasks
                self._say(f"sharequeue: {done} of {tasks} parts done")
