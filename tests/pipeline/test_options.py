"""Options of source and sink: parsed from text, or refused with one line."""

import re
from pathlib import Path

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import (
    GATEWAY,
    SINK,
    SOURCE,
    SinkOptions,
    SourceOptions,
    check_use,
    sink_options,
    source_options,
)


def source(**options: str) -> SourceOptions:
    return source_options({"topics": "orders", **options})


def test_source_options_are_parsed() -> None:
    options = source(
        url="https://queue.example:8443/", token="s3cret", topics=" a, b,,a ", group="g", lockRenew="False"
    )
    assert options.gateway.url == "https://queue.example:8443"
    assert (options.topics, options.group, options.lock_renew) == (("a", "b"), "g", False)
    assert options.parallelism >= 1
    assert "s3cret" not in repr(options)


def test_option_names_have_any_case() -> None:
    assert source(MAXRECORDSPERTRIGGER="7", acquiremode="BATCH_OPTIMIZED").max_records_per_trigger == 7


def test_offsets_are_a_word_or_json() -> None:
    options = source(mode="log", startingOffsets='{"orders":{"0":17}}', endingOffsets="Earliest")
    assert (options.starting, options.ending) == ({"orders": {0: 17}}, "earliest")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "orders"}, "there is no option 'topic'; known are accept, acquireMode"),
        (
            {"kafka.bootstrap.servers": "h:9"},
            "there is no option 'kafka.bootstrap.servers'; known are accept, acquireMode",
        ),
        ({"topics": " , "}, "the option topics names no topic"),
        ({"subscribePattern": "a"}, "give one of topics and subscribePattern"),
        ({"url": "queue:8080"}, "the option url must be like http://127.0.0.1:8080, not 'queue:8080'"),
        ({"maxRecordsPerTrigger": "0"}, "the option maxRecordsPerTrigger must be a whole number from 1 to"),
        (
            {"maxTriggerDelay": "5 days"},
            "the option maxTriggerDelay must be a time like 500ms, 30s or 15m, not '5 days'",
        ),
        ({"maxTriggerDelay": "15m"}, "maxTriggerDelay needs minRecordsPerTrigger"),
        ({"minRecordsPerTrigger": "9", "maxRecordsPerTrigger": "8"}, "minRecordsPerTrigger must not exceed maxRecords"),
        ({"parallelism": "two"}, "the option parallelism must be a whole number from 1 to 100000, not 'two'"),
        ({"onError": "ignore"}, "the option onError must be one of release, reject, not 'ignore'"),
        (
            {"valueFormat": "xml"},
            "the option valueFormat must be one of binary, string, json, avro, protobuf, not 'xml'",
        ),
        (
            {"valueFormat": "json"},
            'valueFormat=json is for writing: read JSON with valueFormat=string, and .withColumn("value", from_json("value"',
        ),
        (
            {"valueSchema": "a INT"},
            "the option valueSchema must be the id of an Avro or Protobuf schema, not 'a INT'; read JSON with valueFormat=s",
        ),
        ({"onMalformed": "fail"}, "onMalformed needs valueFormat=avro or protobuf: from_json has modes"),
        (
            {"valueFormat": "avro", "schemaRegistry": "/s", "valueSchema": "1", "onMalformed": "reject"},
            "onMalformed=reject needs the option group",
        ),
        ({"mode": "log", "group": "g"}, "mode=log reads without a group"),
        ({"mode": "group"}, "mode=group needs the option group"),
        ({"group": "a/b"}, "the option group 'a/b': a group id holds no '/'"),
        ({"group": "g", "startingOffsets": "latest"}, "startingOffsets needs mode=log: a group has its own"),
        ({"group": "g", "endingtimestamp": "5"}, "endingTimestamp needs mode=log: a group has its own"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "give one of startingOffsets and startingTimestamp"),
        ({"startingTimestamp": "-1"}, "the option startingTimestamp must be a whole number from 0 to"),
        (
            {"endingOffsetsByTimestamp": '{"t":{"0":-1}}'},
            "the option endingOffsetsByTimestamp must be times in ms like",
        ),
        ({"startingOffsets": "17"}, "the option startingOffsets must be earliest, latest or like"),
        ({"startingOffsets": '{"orders":{"0":1.5}}'}, "the option startingOffsets must be earliest, latest or like"),
        ({"startingOffsets": '{"orders":{"1_0":1}}'}, "the option startingOffsets must be earliest, latest or like"),
        (
            {"startingOffsets": '{"orders":{"0":-3}}'},
            "the option startingOffsets names offset -3 of orders-0: an offset",
        ),
        ({"parallelism": "١"}, "the option parallelism must be a whole number from 1 to 100000, not '١'"),
        ({"lockRenew": "yes"}, "the option lockRenew must be one of true, false, not 'yes'"),
        ({"token": " "}, "the option token is empty"),
        ({"token": "pl4nted\nb"}, "the option token must be one line"),
        ({"token": "a", "tokenFile": "f"}, "give one of token and tokenFile, not both"),
        ({"url": "http://user:pl4nted@localhost"}, "the option url cannot be used: a URL of a service must not hold"),
    ],
)
def test_a_fault_in_source_options_is_one_line(options: dict[str, str], expected: str) -> None:
    with pytest.raises(PipelineError) as refused:
        source(**options)
    assert str(refused.value).startswith(expected)
    assert "pl4nted" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("option", "stream", "group", "kind"),
    [
        ("accept", True, True, "readStream with a group"),
        ("ENDINGOFFSETS", True, False, "readStream of the log"),
        ("endingTimestamp", True, False, "readStream of the log"),
        ("lockRenew", True, False, "readStream of the log"),
        ("onerror", False, True, "spark.read with a group"),
        ("failOnDataLoss", False, True, "spark.read with a group"),
        ("maxBytesPerTrigger", False, True, "spark.read with a group"),
        ("maxRecordsPerTrigger", False, False, "spark.read of the log"),
        ("acquireMode", False, False, "spark.read of the log"),
    ],
)
def test_an_option_without_effect_is_refused(option: str, stream: bool, group: bool, kind: str) -> None:
    with pytest.raises(PipelineError, match=rf"(?i)^the option {option} has no effect on {kind}: leave it out$"):
        check_use({"topics": "t", option: "x"}, stream=stream, group=group)


def test_a_path_is_refused() -> None:
    with pytest.raises(PipelineError, match="there is no option 'path'"):
        source(path="/tmp/orders")


def test_a_table_of_sql_is_refused_with_what_to_do() -> None:
    with pytest.raises(PipelineError, match=r"^Spark keeps no options of a table.*CREATE TEMPORARY VIEW"):
        source(provider="sharequeue")


def test_a_source_needs_topics() -> None:
    with pytest.raises(PipelineError, match="the option topics is missing"):
        source_options({"group": "g"})
    with pytest.raises(PipelineError, match="the option subscribePattern must be a regular expression"):
        source_options({"subscribePattern": "["})


def test_sink_options_are_parsed() -> None:
    options = sink_options({"topic": "out", "valueformat": "JSON", "checkpointLocation": "/tmp/x", "writeId": "w"})
    assert (options.topic, options.value_format, options.write_id) == ("out", "json", "w")
    assert sink_options({}) == SinkOptions(gateway=options.gateway)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topics": "out"}, "there is no option 'topics'"),
        ({"maxRequestBytes": "100000000"}, "the option maxRequestBytes must be a whole number from 1 to 8388608"),
        ({"writeId": "x" * 65}, "the option writeId must have at most 64 characters"),
        (
            {"transactional": "true", "transactionalId": "x" * 250},
            "the option transactionalId must have at most 249 characters",
        ),
        ({"transactionalId": "x"}, "transactionalId needs transactional=true"),
        ({"transactional": "false", "transactionTimeoutMs": "1"}, "transactionTimeoutMs needs transactional=true"),
    ],
)
def test_a_fault_in_sink_options_is_one_line(options: dict[str, str], expected: str) -> None:
    with pytest.raises(PipelineError) as refused:
        sink_options(options)
    assert str(refused.value).startswith(expected)


def test_every_option_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    for heading, options in (("## Reading", SOURCE), ("## Writing", SINK)):
        rows = re.findall(r"^\| (`.*?`) \|", text.split(heading)[1].split("\n## ")[0], re.MULTILINE)
        expected = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert expected == {*GATEWAY, *options}, heading
