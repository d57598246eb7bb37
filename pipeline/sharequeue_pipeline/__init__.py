"""The data pipeline on Spark: the format `sharequeue` for reading and writing topics, and jobs over topics.

    from sharequeue_pipeline import session

    spark = session(master="local[4]")
    orders = spark.readStream.format("sharequeue").option("group", "billing").option("topics", "orders").load()

Programs import `session`, `register`, `settle`, `read_dead_letters` and `PipelineError` from here. Inside,
each part knows those below it:

    jobs                      the commands of `sharequeue pipeline`
    archiving  spark_session  topics as Delta tables; a SparkSession that knows the format
    settling  dead_letters    outcomes of single records; dead letters as rows
    data_source               the format: which reader or writer serves which call of Spark
    source      sink          reading; writing
    gateway_client            the HTTP API without asyncio
    options  ranges  ahead    options as text; ranges of offsets; work in threads
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pyspark

from sharequeue_pipeline.spark_version import check

check(pyspark.__version__)  # before the imports that an older PySpark cannot answer

if TYPE_CHECKING:
    from sharequeue_pipeline.dead_letters import read_dead_letters
    from sharequeue_pipeline.errors import PipelineError
    from sharequeue_pipeline.settling import settle
    from sharequeue_pipeline.spark_session import register, session

__all__ = ["PipelineError", "read_dead_letters", "register", "session", "settle"]

_MODULES: Final = {
    "PipelineError": "errors",
    "read_dead_letters": "dead_letters",
    "register": "spark_session",
    "session": "spark_session",
    "settle": "settling",
}


def __getattr__(name: str) -> Any:
    """Import a name when a program asks for it: Spark's own processes import this package at each start of a stream,
    and need the format alone."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
