"""Two pages for people: `/` names what there is, and `/docs` shows the OpenAPI document, where calls can be tried.

    /        JSON, or HTML for an Accept that names text/html
    /docs    docs.html ──▶ /docs/swagger-ui.css, /docs/swagger-ui-bundle.js    of the package fastapi-swagger
                      ├──▶ /docs/pages.css, /docs/docs.js                      beside this file
                      └──▶ /openapi.json

The pages load nothing from elsewhere, so they work without the internet. The links are relative: behind a proxy they
lead to the proxy. Because of the headers, a browser runs no other script, and shows the pages in no frame. The
routes are FastAPI's, not endpoints, so the pages are not in the document and not among the calls that skip ASGI.
`sharequeue.http.application.checked_callers` asks about their hosts and origins as for any other path.

A file is sent from the disk in pieces: an answer of any size takes no more memory than a piece.
"""

import html
import json
import logging
from importlib import metadata
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from sharequeue import __version__
from sharequeue.http.application.app import App
from sharequeue.http.request_id import request_id_from
from sharequeue.log import fields
from sharequeue_gateway.http.answers import media_types

log = logging.getLogger(__name__)

PACKAGE: Final = "fastapi-swagger"
"""Ships the files of Swagger UI as its project releases them. Only these files are used, found by their names."""
SHIPPED: Final = ("swagger-ui.css", "swagger-ui-bundle.js")
OWN: Final = ("pages.css", "docs.js")
HERE: Final = Path(__file__).parent
LINKS: Final = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "openapi_3_0": "/openapi-3.0.json",
    "topics": "/v1/topics",
    "share_groups": "/v1/share-groups",
    "ready": "/readyz",
    "metrics": "/metrics",
}
MEANINGS: Final = {
    "docs": "every call, to read and to try",
    "openapi": "the OpenAPI 3.1 document",
    "openapi_3_0": "the same as OpenAPI 3.0",
    "topics": "the topics",
    "share_groups": "the share groups",
    "ready": "whether this gateway can work",
    "metrics": "metrics for Prometheus",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",  # Swagger UI's style sheet has its icons as data
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FRESH_S: Final = 3600
"""How long a browser may use a file again without asking."""


def serve_pages(app: App) -> None:
    """Add the pages. Without the files of Swagger UI there is no `/docs`, and a warning in the log says so."""
    found = {name: path for name in SHIPPED if (path := _shipped(name)) is not None}
    links = LINKS
    for name, path in {**found, **{name: HERE / name for name in OWN}}.items():
        _serve_file(app, f"/docs/{name}", path, {"Cache-Control": f"max-age={FRESH_S}"})
    if len(found) == len(SHIPPED):
        _serve_file(app, "/docs", HERE / "docs.html", {"Cache-Control": "no-cache"})
    else:
        missing = ", ".join(name for name in SHIPPED if name not in found)
        log.warning("there is no /docs: files of a package are missing", extra=fields(package=PACKAGE, files=missing))
        links = {name: path for name, path in LINKS.items() if name != "docs"}
    _serve_index(app, links)


def _shipped(name: str) -> Path | None:
    """The file of this name in the package, in whatever folder it lies."""
    try:
        files = metadata.files(PACKAGE) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((path for file in files if file.name == name and (path := Path(str(file.locate()))).is_file()), None)


def _serve_file(app: App, path: str, file: Path, headers: dict[str, str]) -> None:
    async def answer(request: Request) -> Response:
        # For HEAD too: the edge leaves the body out. An answer without one would say that the file is empty.
        request.scope["method"] = "GET"
        return FileResponse(file, headers={**HEADERS, **headers, **_request_id(request)})

    _add(app, path, answer)


def _serve_index(app: App, links: dict[str, str]) -> None:
    entries = "".join(
        f'<dt><a href="{link.removeprefix("/")}">{link}</a></dt><dd>{html.escape(MEANINGS[name])}</dd>'
        for name, link in links.items()
    )
    page = (HERE / "index.html").read_text().replace("{version}", __version__).replace("{links}", entries)
    document = json.dumps({"name": "sharequeue", "version": __version__, "links": links}, separators=(",", ":"))

    async def answer(request: Request) -> Response:
        headers = {**HEADERS, "Vary": "Accept", "Cache-Control": "no-cache", **_request_id(request)}
        if media_types.qualities(request.headers.get("accept", "")).get("text/html", 0.0) > 0:
            return Response(page, headers=headers, media_type="text/html")
        return Response(document, headers=headers, media_type="application/json")

    _add(app, "/", answer)


def _add(app: App, path: str, answer: object) -> None:
    app.add_api_route(path, answer, methods=["GET", "HEAD"], response_model=None, include_in_schema=False)  # type: ignore[arg-type]


def _request_id(request: Request) -> dict[str, str]:
    return {"X-Request-Id": request_id_from(request.headers.get("x-request-id", "").encode())}
