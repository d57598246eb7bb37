"""The document that clients were made from, and the present one: what breaks them is in the changelog."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.openapi.breaking import breaking
from tests.openapi.public import BASELINE, public_document

Json = dict[str, Any]

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
OLD: Json = json.loads(BASELINE.read_text())


def named_in_changelog() -> set[str]:
    """The places in backquotes of the section `### Breaking` of the newest version."""
    newest = CHANGELOG.read_text().split("\n## ")[1]
    section = re.search(r"### Breaking\n(.*?)(?=\n### |\Z)", newest, re.S)
    return set(re.findall(r"`([^`]+)`", section[1])) if section else set()


def test_every_breaking_change_is_in_the_changelog() -> None:
    found = breaking(OLD, public_document())
    unnamed = [line for line in found if line.split("`")[1] not in named_in_changelog()]
    assert unnamed == [], (
        "Code that was made from the document of the last release breaks. Find another way, or name each place in "
        "backquotes in the section `### Breaking` of CHANGELOG.md"
    )


def operation(document: Json, operation_id: str) -> Json:
    return next(op for path in document["paths"].values() for op in path.values() if op["operationId"] == operation_id)


def schema(document: Json, name: str) -> Json:
    return dict(document["components"]["schemas"])[name]


def drop(document: Json, path: str) -> None:
    del document["paths"][path]


def rename(document: Json, old: str, new: str) -> None:
    document["components"]["schemas"][new] = document["components"]["schemas"].pop(old)


BREAKING: dict[str, tuple[Callable[[Json], Any], str]] = {
    "an operation is gone": (lambda d: drop(d, "/livez"), "livez"),
    "an operation has another name": (lambda d: operation(d, "livez").update(operationId="isAlive"), "livez"),
    "an operation has another tag": (lambda d: operation(d, "livez").update(tags=["Audit"]), "livez"),
    "a schema has another name": (lambda d: rename(d, "Topic", "LogTopic"), "Topic"),
    "a field of an answer is gone": (lambda d: schema(d, "Topic")["properties"].pop("config"), "Topic.config"),
    "a field is not always answered": (lambda d: schema(d, "Topic")["required"].remove("config"), "Topic.config"),
    "an answer has a new word": (lambda d: schema(d, "DeliveryState")["enum"].append("LOST"), "DeliveryState"),
    "a word is refused": (lambda d: schema(d, "AcknowledgeType")["enum"].remove("renew"), "AcknowledgeType"),
    "a field is refused": (lambda d: schema(d, "FetchRequest")["properties"].pop("atomic"), "FetchRequest.atomic"),
    "a field must be sent": (
        lambda d: schema(d, "CreateTopicRequest")["required"].append("config"),
        "CreateTopicRequest.config",
    ),
    "a type is another": (
        lambda d: schema(d, "FetchRequest")["properties"]["max_bytes"].update(type="string"),
        "FetchRequest.max_bytes",
    ),
    "a format is another": (
        lambda d: schema(d, "Topic")["properties"]["partitions"].update(format="int64"),
        "Topic.partitions",
    ),
    "a bound is narrower": (
        lambda d: schema(d, "FetchRequest")["properties"]["topics"].update(maxItems=10),
        "FetchRequest.topics",
    ),
    "a lower bound is higher": (
        lambda d: schema(d, "FetchRequest")["properties"]["max_records"].update(minimum=1),
        "FetchRequest.max_records",
    ),
    "a pattern is another": (
        lambda d: schema(d, "FetchRequest")["properties"]["topics"]["items"].update(pattern="^x$"),
        "FetchRequest.topics[]",
    ),
    "a parameter is gone": (lambda d: operation(d, "listTopics")["parameters"].pop(), "listTopics.page_token"),
    "a parameter is required": (
        lambda d: operation(d, "listTopics")["parameters"][0].update(required=True),
        "listTopics.page_size",
    ),
    "a status is another": (lambda d: operation(d, "createTopic")["responses"].pop("201"), "createTopic"),
    "a body is of another type": (
        lambda d: operation(d, "readRecords")["responses"]["200"].update(content={"text/plain": {"schema": {}}}),
        "readRecords",
    ),
}
PASSING: dict[str, Callable[[Json], Any]] = {
    "nothing": lambda d: None,
    "an operation more": lambda d: d["paths"].update({"/v2": {"get": operation(d, "livez")}}),
    "an optional field of a request": lambda d: schema(d, "FetchRequest")["properties"].update(more={"type": "string"}),
    "a field of an answer": lambda d: schema(d, "Topic")["properties"].update(more={"type": "string"}),
    "a field that is always answered": lambda d: schema(d, "FetchedBatch")["required"].append("records"),
    "a word of requests": lambda d: schema(d, "AcknowledgeType")["enum"].append("skip"),
    "an open word": lambda d: schema(d, "ErrorCode")["x-extensible-enum"].append("OUT_OF_INK"),
    "a wider bound": lambda d: schema(d, "FetchRequest")["properties"]["topics"].update(maxItems=5000),
    "another description": lambda d: schema(d, "Topic").update(description="A log."),
    "another status of a failure": lambda d: operation(d, "createTopic")["responses"].update({"418": {}}),
    "an optional parameter": lambda d: operation(d, "listTopics")["parameters"].append(
        {"name": "more", "in": "query", "required": False, "schema": {"type": "string"}}
    ),
}


@pytest.mark.parametrize(("change", "place"), BREAKING.values(), ids=BREAKING.keys())
def test_a_change_that_breaks_clients_is_found(change: Callable[[Json], Any], place: str) -> None:
    changed = copy.deepcopy(OLD)
    change(changed)
    found = breaking(OLD, changed)
    assert found
    assert {line.split("`")[1].removesuffix(" answer").removesuffix(" request") for line in found} == {place}


@pytest.mark.parametrize("change", PASSING.values(), ids=PASSING.keys())
def test_an_addition_passes(change: Callable[[Json], Any]) -> None:
    changed = copy.deepcopy(OLD)
    change(changed)
    assert breaking(OLD, changed) == []
