"""Dead letters as rows, with their reasons.

    letters = read_dead_letters(spark, "billing").where("delivery_count >= 5")
    letters.groupBy("topic", "reason").count().show()

`sharequeue groups redrive` sends dead letters back.
"""

from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.protocol.configs import ERROR_HEADER
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import DEFAULT_URL, GatewayOptions

DLQ_NAME: Final = "errors.deadletterqueue.topic.name"
REASONS: Final = "array<struct<reason: string, at_ms: bigint>>"


def read_dead_letters(
    spark: SparkSession,
    group: str,
    *,
    url: str = DEFAULT_URL,
    token: str | None = None,
    token_file: str | None = None,
    ca: str | None = None,
    value_format: Literal["binary", "string"] = "binary",
) -> DataFrame:
    """The dead letters of a group, one row each, those that were redriven before included.

    Columns: `topic`, `partition`, `offset` and `delivery_count` of the record; `cause` and `reason`; `reasons`, the
    last five of its deliveries with their times (`at`, `reason`), the oldest first, null with fewer than two;
    `timestamp` of the dead letter, with `key`, `value` and `headers`;
    its own `dead_letter_partition` and `dead_letter_offset`.

    Args:
        token, token_file, ca: as the options of a source.
    Raises: PipelineError: the group has no dead letters.
    """
    to = GatewayOptions(url=url.rstrip("/"), token=token, token_file=token_file, ca=ca)
    options: dict[str, Any] = {
        **to.for_spark(),
        "topics": _dead_letter_topic(to, group),
        "mode": "log",
        "failOnDataLoss": False,
        "valueFormat": value_format,
    }
    read = spark.read.format("sharequeue").options(**options).load()
    return read.where(_header("group") == group).select(
        _header("topic").alias("topic"),
        _header("partition").cast("int").alias("partition"),
        _header("offset").cast("bigint").alias("offset"),
        _header("delivery.count").cast("int").alias("delivery_count"),
        _header("message").alias("cause"),
        _header("reason").alias("reason"),
        f.transform(f.from_json(_header("reasons"), REASONS), _given).alias("reasons"),
        "timestamp",
        "key",
        "value",
        "headers",
        f.col("partition").alias("dead_letter_partition"),
        f.col("offset").alias("dead_letter_offset"),
    )


def _dead_letter_topic(to: GatewayOptions, group: str) -> str:
    """The topic of a group's dead letters. Raises: PipelineError: there is none yet."""
    with GroupClient(to) as gateway:
        name = gateway.group_config(group)[DLQ_NAME]
        if not name or gateway.find(name, first_try=True) is None:
            raise PipelineError(f"the group {group!r} has no dead letters")
    return name


def _header(name: str) -> Column:
    return f.col("headers")[ERROR_HEADER + name]


def _given(reason: Column) -> Column:
    return f.struct(f.timestamp_millis(reason["at_ms"]).alias("at"), reason["reason"].alias("reason"))
