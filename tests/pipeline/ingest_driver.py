"""A driver program for tests to kill: the job `ingest` in a session on a cluster whose workers lack the package.

Usage: ingest_driver.py MASTER ARCHIVE ARGUMENTS…. ARCHIVE has the packages, and ARGUMENTS are those of the job.
"""

import sys

from sharequeue_pipeline import session
from sharequeue_pipeline.jobs import ingest

from tests.pipeline.driver import QUICK_JAVA, QUICK_SPARK

if __name__ == "__main__":
    master, archive, *arguments = sys.argv[1:]
    config = {**QUICK_SPARK, "spark.archives": f"{archive}#site", "spark.executorEnv.PYTHONPATH": "site"}
    config |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK_JAVA}
    spark = session("driver", master=master, config=config)
    ingest.command.main(arguments, standalone_mode=False)  # it uses the running session
    spark.stop()
