"""The document of a gateway, made without one."""

import json
from collections.abc import Iterator
from typing import Any

from sharequeue.openapi import document
from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api

Json = dict[str, Any]


def public_document() -> Json:
    """The document of all calls that clients may make."""
    calls = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
    return dict(json.loads(json.dumps(document("sharequeue", "Records over HTTP.", calls))))


def parts(part: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object inside of a part of a document, with its place."""
    if isinstance(part, dict):
        yield place, part
        for name, inner in part.items():
            yield from parts(inner, f"{place}/{name}")
    if isinstance(part, list):
        for inner in part:
            yield from parts(inner, place)
