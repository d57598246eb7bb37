"""What the processes that Spark starts import."""

import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

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


ON_A_NODE = """
import sys
from importlib.metadata import requires
from packaging.requirements import Requirement
there = {"sharequeue", "pyspark", "pyarrow", "numpy", "pandas", *(Requirement(shipped).name for shipped in sys.argv[1:])}
for each in map(Requirement, requires("sharequeue")):
    if each.marker is not None and each.name not in there:
        sys.modules[each.name.replace("-", "_")] = None
import sharequeue_pipeline.record_answers, sharequeue_pipeline.sink.stream_writer
import sharequeue_pipeline.source.group_stream, sharequeue_pipeline.source.record_columns
"""


def test_tasks_need_only_what_the_page_ships_to_the_nodes() -> None:
    """No extra is on the nodes: neither [server] nor the rest of [spark]."""
    page = (Path(__file__).parents[2] / "docs/pipeline.md").read_text()
    (shipped,) = re.findall(r"^pip install --target site /path/to/sharequeue(.*)$", page, re.MULTILINE)
    subprocess.run([sys.executable, "-c", ON_A_NODE, *shlex.split(shipped)], timeout=300, check=True)
