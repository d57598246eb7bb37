"""Calls of the HTTP API in a sentence: their paths, the names in their queries and bodies, headers, and curl's options.

The OpenAPI document decides, which the services serve. Values are the reader's.
"""

import re
import shlex
import shutil
import subprocess
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

from sharequeue.openapi import document
from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api
from tests.shown import Wrong
from tests.shown.programs import stands_in_a_program

OPENAPI: Final = document(
    "sharequeue", "", [api for api in vars(apis).values() if isinstance(api, Api) and not api.internal]
)
OPERATIONS: Final = {
    (method.upper(), path): operation
    for path, methods in OPENAPI["paths"].items()
    for method, operation in methods.items()
}
STANDARD_HEADERS: Final = {"accept", "authorization", "cache-control", "content-type", "expect", "origin"}
"""Of HTTP; the others are in the document."""


def _named(place: str) -> set[str]:
    """The parameters of all operations that stand in `query`, `header` or `path`."""
    return {
        parameter["name"].lower()
        for operation in OPERATIONS.values()
        for parameter in operation["parameters"]
        if parameter["in"] == place
    }


def _properties(schema: Any) -> set[str]:
    """The names of all properties of a schema, and of those within."""
    if isinstance(schema, list):
        return {name for part in schema for name in _properties(part)}
    if not isinstance(schema, dict):
        return set()
    own = {*schema["properties"]} if isinstance(schema.get("properties"), dict) else set()
    return own | {name for part in schema.values() for name in _properties(part)}


QUERY: Final = _named("query")
HEADERS: Final = (
    STANDARD_HEADERS
    | _named("header")
    | {
        name.lower()
        for operation in OPERATIONS.values()
        for answer in operation["responses"].values()
        for name in answer.get("headers", {})
    }
)
FIELDS: Final = _properties(OPENAPI["components"]["schemas"])
NOT_HTTP: Final = {"orders", "lag", "log", "schemas", "schema", "before", "after"}
"""Keys of the JSON of a query's offsets, and of `sharequeue migrate --json`."""


def check_call(code: str) -> None:
    """`GET /v1/topics/{topic}?strict=true`; a path may end in `…`."""
    method, _, target = code.partition(" ")
    path, _, query = target.partition("?")
    if not any(of == method and _fits(path, there) for of, there in OPERATIONS):
        raise Wrong(f"there is no call {method} {path}")
    check_query(query)


def check_query(query: str) -> None:
    """`?offset=0&max_records=500`."""
    for name, _ in parse_qsl(query.lstrip("?"), keep_blank_values=True):
        if name not in QUERY:
            raise Wrong(f"no call takes {name} in its query")


def check_body(code: str) -> None:
    """`{"name","partitions":1,"config":{}}`: a body, or a part of it, with or without values."""
    for name in re.findall(r'(?<![:\w])"([a-z][a-z_]*)"(?=[\s,:}\]])', re.sub(r':\s*"[^"]*"', ":", code)):
        if name not in FIELDS | NOT_HTTP:
            raise Wrong(f"no body of a call has {name}")


def check_header(code: str) -> None:
    """`Accept: text/event-stream`."""
    name = code.partition(":")[0]
    if name.lower() not in HEADERS and not stands_in_a_program(name.lower()):
        raise Wrong(f"no call has the header {name}")


def check_curl(code: str) -> None:
    """Its options, and the call if it is one of ours: `curl -s "$SHAREQUEUE_URL/v1/topics" -d '{"name":"orders"}'`."""
    words = shlex.split(code.partition(" | ")[0])
    for option in (word for word in words if word.startswith("-")):
        for each in [option] if option.startswith("--") else [f"-{letter}" for letter in option[1:]]:
            if each not in _options_of_curl():
                raise Wrong(f"curl has no {each}")
    method = "POST" if "-d" in words else "GET"
    for word in words:
        if found := re.fullmatch(r"(?:\$\w+|https?://[^/]+)(/[^?]*)(\?.*)?", word):
            check_call(f"{method} {found[1]}{found[2] or ''}")
    if "-d" in words:
        check_body(words[words.index("-d") + 1])


def _fits(path: str, template: str) -> bool:
    """Whether a path of a page is one of the document: a name may stand in place of `{topic}`, `…` for the rest."""
    there = template.split("/")
    here = path.split("/")
    if here[-1] == "…":
        here, there = here[:-1], there[: len(here) - 1]
    return len(here) == len(there) and all(
        one == other or (other.startswith("{") and bool(one) and not one.startswith("{"))
        for one, other in zip(here, there, strict=True)
    )


@cache
def _options_of_curl() -> frozenset[str]:
    assert shutil.which("curl"), "install curl: the pages use it"
    text = subprocess.run(["curl", "--help", "all"], capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"(?<!\S)(--?[\w-]+)", text))
