"""The data pipeline on Spark: the source and sink `sharequeue`, and the jobs made of them.

from sharequeue_pipeline import session

spark = session(master="local[4]")
orders = spark.readStream.format("sharequeue").option("group", "billing").option("topics", "orders").load()
"""

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.session import register, session

__all__ = ["PipelineError", "register", "session"]
