"""Spark itself reads a Delta table, with Delta's own package from Maven Central.

The newest Spark with such a package runs in a process of its own, beside the Spark of this environment.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.pipeline import versions

SPARK: Final = "4.1.4"
PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.1.0"
PROGRAM: Final = """
import sys
from pyspark.sql import SparkSession
table, ivy, package, *columns = sys.argv[1:]
settings = {
    "spark.jars.packages": package,
    "spark.jars.ivy": ivy,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
print("found", *spark.read.format("delta").load(table).selectExpr(*columns).first())
"""


def first_row(table: Path, directory: Path, *columns: str) -> str:
    """What Spark finds: the first row of these columns, as text. `directory`: for the other Spark and its packages."""
    versions.install(SPARK, directory / "pyspark")
    kept = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYSPARK_PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(table), str(directory / "ivy"), PACKAGE, *columns],
        env={**kept, "PYTHONPATH": str(directory / "pyspark")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert found, done.stderr[-2000:]
    return found[0].removeprefix("found ")
