"""Filters what Java writes to stderr when a job starts Spark: the job shows it without Spark's own chatter.

Java and the Python workers inherit stderr, so our warnings come this way too. Java's notes about modules, log4j's and
Spark's log lines below ERROR are left out. Under spark-submit Java is there first, and its settings decide.
"""

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator
from typing import Final

from pyspark import SparkContext

_CHATTER: Final = re.compile(
    rb"WARNING: (Using incubator modules|A terminally deprecated|A restricted method|Use --enable-native-access"
    rb"|Restricted methods will|sun\.misc\.Unsafe|Please consider reporting)"
    rb"|Using Spark's default log4j profile|Setting (default|Spark) log level|To adjust logging level"
    rb"|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (TRACE|DEBUG|INFO|WARN) "
    rb"|Picked up (_JAVA_OPTIONS|JAVA_TOOL_OPTIONS)"
    rb"|OpenJDK 64-Bit Server VM warning|\s*$"
)
FLUSH_S: Final = 2.0
"""How long a start that failed waits for what Java said last."""


@contextlib.contextmanager
def quiet_java() -> Iterator[None]:
    """Filter what Java writes to stderr until it ends, if it starts within the block."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None:
        yield
        return
    source, target = os.pipe()
    stderr = os.dup(2)
    sys.stderr.flush()
    os.dup2(target, 2)
    os.close(target)
    thread = threading.Thread(target=_forward, args=(source, stderr), daemon=True, name="sharequeue stderr")
    thread.start()
    try:
        yield
    except BaseException:
        os.dup2(stderr, 2)
        thread.join(FLUSH_S)
        raise
    os.dup2(stderr, 2)


def _forward(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            if not _CHATTER.match(line):
                os.write(target, line)
