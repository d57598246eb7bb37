"""What spark-submit is given, and `python -m sharequeue_pipeline JOB …`: the same as `sharequeue pipeline JOB …`."""

from sharequeue.cli.pipeline import pipeline

pipeline(prog_name="sharequeue pipeline")
