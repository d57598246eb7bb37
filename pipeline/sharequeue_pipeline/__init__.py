"""The data pipeline on Spark: the format `sharequeue` for reading and writing topics, and jobs over topics.

    from sharequeue_pipeline import session

    spark = session(master="local[4]")
    orders = spark.readStream.format("sharequeue").option("group", "billing").option("topics", "orders").load()

Programs import `session`, `register`, `settle`, `read_dead_letters`, `redrive_dead_letters` and `PipelineError` from
here. Inside, each part knows those below it:

    jobs                      the commands of `sharequeue pipeline`
    archiving   session       an archive in Parquet; a SparkSession that knows the format
    settling  dead_letters    outcomes of single records; dead letters as rows, and back to their topics
    data_source               the format: which reader or writer serves which call of Spark
    source      sink          reading; writing
    gateway_client            the HTTP API without asyncio
    options     ranges        options as text; ranges of offsets
"""

import pyspark

from sharequeue_pipeline.spark_version import check

check(pyspark.__version__)  # before the imports that an older PySpark cannot answer

from sharequeue_pipeline.dead_letters import read_dead_letters, redrive_dead_letters  # noqa: E402
from sharequeue_pipeline.errors import PipelineError  # noqa: E402
from sharequeue_pipeline.session import register, session  # noqa: E402
from sharequeue_pipeline.settling import settle  # noqa: E402

__all__ = ["PipelineError", "read_dead_letters", "redrive_dead_letters", "register", "session", "settle"]
