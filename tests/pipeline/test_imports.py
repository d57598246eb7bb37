"""What the processes that Spark starts import."""

import subprocess
import sys
import warnings

from pyspark.sql.pandas.utils import require_minimum_pandas_version

START = """
import sys
import sharequeue_pipeline.data_source, sharequeue_pipeline.source.log_stream, sharequeue_pipeline.source.group_stream
late = {"fastavro", "google.protobuf", "pyarrow.compute", "pyarrow.fs", "sharequeue_pipeline.dead_letters",
        "sharequeue_pipeline.settling", "sharequeue_pipeline.sink", "sharequeue_pipeline.spark_session"}
print(*sorted(late & sys.modules.keys()))
"""


def test_a_stream_starts_without_what_it_needs_later() -> None:
    """Each start of a stream waits for a new Python process."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "\n"


def test_pandas_is_one_that_spark_supports() -> None:
    """PySpark warns of others in each program that makes a frame of pandas or maps rows as Arrow batches."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_minimum_pandas_version()


WITHOUT_SERVER = """
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
wanted = [each for each in map(Requirement, requires("sharequeue")) if each.marker is not None]
server, spark = ({each.name for each in wanted if each.marker.evaluate({"extra": of})} for of in ("server", "spark"))
for name in server - spark:
    sys.modules[name.replace("-", "_")] = None
import sharequeue_pipeline.record_answers, sharequeue_pipeline.sink.stream_writer
import sharequeue_pipeline.source.group_stream, sharequeue_pipeline.source.record_columns
"""


def test_tasks_need_nothing_of_the_services() -> None:
    """The extra [spark] does not install what the extra [server] has, and nodes have neither."""
    subprocess.run([sys.executable, "-c", WITHOUT_SERVER], timeout=300, check=True)
