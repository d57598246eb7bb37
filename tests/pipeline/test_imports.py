"""What the processes that Spark starts import."""

import subprocess
import sys

START = """
import sys
import sharequeue_pipeline.data_source, sharequeue_pipeline.source.log_readers, sharequeue_pipeline.source.group_stream
late = {"fastavro", "google.protobuf", "pyarrow.compute", "pyarrow.fs", "sharequeue_pipeline.dead_letters",
        "sharequeue_pipeline.settling", "sharequeue_pipeline.sink", "sharequeue_pipeline.spark_session"}
print(*sorted(late & sys.modules.keys()))
"""


def test_a_stream_starts_without_what_it_needs_later() -> None:
    """Each start of a stream waits for a new Python process."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "\n"
