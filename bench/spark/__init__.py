"""Spark on sharequeue beside Spark on Kafka, in one session: `python -m bench.spark`, `make spark-bench`."""
