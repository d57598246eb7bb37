"""Runs jobs through the command line, in this process's Spark session."""

import json
from typing import Any

from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sharequeue.cli import main


class Jobs:
    """`sharequeue pipeline JOB …` against one gateway."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark = spark  # jobs use the running session
        self.url = url

    def run(self, job: str, *arguments: object) -> Result:
        words = ["pipeline", job, "--url", self.url, *map(str, arguments)]
        return CliRunner().invoke(main, words)

    def done(self, job: str, *arguments: object) -> Any:
        """The report of a job that must succeed."""
        result = self.run(job, "--json", *arguments)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return json.loads(result.stdout)

    def refused(self, job: str, *arguments: object) -> tuple[int, str]:
        """Exit code, and the one line on stderr, of a job that must fail."""
        result = self.run(job, *arguments)
        assert result.exit_code != 0, result.output
        (line,) = result.stderr.splitlines()
        return result.exit_code, line
