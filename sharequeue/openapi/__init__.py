"""OpenAPI of a service, made of its calls: 3.1 at `/openapi.json`, and a 3.0 down-conversion at `/openapi-3.0.json`.

    sharequeue.protocol.apis ──────▶ document ──▶ older         the same as OpenAPI 3.0
                                        ├───────▶ answers       statuses, problems and headers of an operation
                                        ├───────▶ parameters
                                        ├───────▶ examples      a story of calls, in story.json and examples.json
    sharequeue.protocol.messages ──▶ schemas ───▶ field_texts   what the source says of each field

Made for code generators: explicit operation ids, one tag and one media type per answer, named schemas and enums, the
shared Problem schema for every error. An optional field is absent, never `null`. A default is said in words: generators
take a property with a `default` for one that is always there.
"""

from typing import Final

from sharequeue.openapi.document import document
from sharequeue.openapi.older import to_3_0
from sharequeue.protocol import apis
from sharequeue_http.answer import Answer
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode

__all__ = ["document", "serve_openapi", "to_3_0"]

OPENAPI: Final = Api("openapi", "GET /openapi.json", "This document.", tag="Operations")
OPENAPI_3_0: Final = Api("openapi30", "GET /openapi-3.0.json", "The document as OpenAPI 3.0.", tag="Operations")


def serve_openapi(app: App, description: str) -> None:
    """Add both documents, of all calls of `app` that clients may make."""
    public = [endpoint.api for endpoint in app.paths.endpoints if not endpoint.api.internal]
    public += apis.LIVEZ, apis.READYZ, apis.METRICS  # its service adds them
    current = document(app.title, description, public)
    newest, older = encode(current), encode(to_3_0(current))

    async def openapi(_: Call) -> Answer:
        return Answer(newest)

    async def openapi_3_0(_: Call) -> Answer:
        return Answer(older)

    serve(app, OPENAPI, openapi)
    serve(app, OPENAPI_3_0, openapi_3_0)
