"""`python -m sharequeue_pipeline JOB …`, and what spark-submit is given: the same as `sharequeue pipeline JOB …`."""

from sharequeue.cli.pipelining import pipeline

pipeline(prog_name="sharequeue pipeline")
