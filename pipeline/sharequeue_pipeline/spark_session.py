"""A SparkSession that knows the format `sharequeue`."""

import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sharequeue_pipeline.data_source import ShareQueueDataSource
from sharequeue_pipeline.java import find_java_home, own_directory
from sharequeue_pipeline.source.query_end import QueryEndListener

log = logging.getLogger(__name__)

_SESSION: Final = "org.apache.spark.sql.classic.SparkSession"

_SOCKETS: Final = {"spark.python.unix.domain.socket.enabled": "true"} if hasattr(socket, "AF_UNIX") else {}
_FASTER: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": "2m", **_SOCKETS}
"""Java gives Python rows as often as 2 MiB of them are made, and not at 64 MiB or 10,000 rows: a task of a write sends
the first ones while Java makes the next. They go through Unix sockets, which take a tenth less CPU than those of the
loopback. A job of spark-submit keeps its own settings."""


def session(
    name: str = "sharequeue", master: str | None = None, config: Mapping[str, Any] | None = None
) -> SparkSession:
    """The running SparkSession or a new one. It knows the format `sharequeue` and is active in this thread.

    Args:
        master: e.g. `local[4]`. Default: the one of spark-submit, otherwise `local[*]`.
        config: further settings of Spark.
    Raises: PipelineError: there is no Java for Spark.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the default is python3 from the PATH
    config = config or {}
    if SparkSession.getActiveSession() is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        java_home = find_java_home(os.environ)
        if java_home is not None:
            os.environ["JAVA_HOME"] = java_home
        local = (master or config.get("spark.master", "local")).startswith("local") and os.name == "posix"
        if local and "SPARK_HOME" not in os.environ and os.environ["PYSPARK_PYTHON"] == sys.executable:
            os.environ["SPARK_HOME"] = _home_without_archive(Path(pyspark.__path__[0]))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    submitted = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    for setting, value in config.items() if submitted else {**_FASTER, **config}.items():
        builder = builder.config(setting, value)
    return register(builder.getOrCreate())


def _home_without_archive(installed: Path) -> str:
    """Make a home for Spark that is the installed PySpark without its archive. From that, each Python that Spark starts
    would compile PySpark again: two thirds of its CPU. It imports the installed package instead, which is compiled."""
    home = own_directory() / "home"
    home.mkdir()
    for entry in installed.iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return str(home)


def register(spark: SparkSession) -> SparkSession:
    """Register the format `sharequeue` with a session, and make the session active in this thread.

    Spark's writers look up a format in the thread's active session, not in the session they are called on. A thread
    that has not made a session has no active one. So call this once in every thread that writes; repeating it does no
    harm.

    A session of Spark Connect has no Java in this process. There the format is registered, and that is all: a query
    that ends is not settled, and `settle` does not work.
    """
    if not isinstance(spark, SparkSession):
        log.warning(
            "a session of Spark Connect: records of a query that fails or is stopped stay locked until their locks end, and "
            "settle() does not work"
        )
        spark.dataSource.register(ShareQueueDataSource)
        return spark
    QueryEndListener.listen(spark)
    assert spark._jvm is not None
    getattr(spark._jvm, _SESSION).setActiveSession(spark._jsparkSession)
    known = spark._jsparkSession.sessionState().dataSourceManager()
    if not known.dataSourceExists(ShareQueueDataSource.name()):  # Spark 4.1 and later find it themselves
        spark.dataSource.register(ShareQueueDataSource)
    return spark
