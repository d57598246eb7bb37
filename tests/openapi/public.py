"""The document of a gateway, made without one."""

import json
from pathlib import Path
from typing import Any, Final

from sharequeue.http.openapi import document
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api

Json = dict[str, Any]
BASELINE: Final = Path(__file__).with_name("baseline.json")
"""The document that the clients of the last release were made from."""


def public_document() -> Json:
    """The document of all calls that clients may make."""
    calls = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
    return dict(json.loads(json.dumps(document("sharequeue", "Records over HTTP.", calls))))
