"""The document of a gateway, made without one."""

import json
from typing import Any

from sharequeue.openapi import document
from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api

Json = dict[str, Any]


def public_document() -> Json:
    """The document of all calls that clients may make."""
    calls = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
    return dict(json.loads(json.dumps(document("sharequeue", "Records over HTTP.", calls))))
