"""Pages for people: `/ui` shows the queue live, `/docs` the OpenAPI document, where calls can be tried. `/` leads to
`/ui`.

    /ui      ui.py
    /docs    docs.html ──▶ /docs/swagger-ui.css, /docs/swagger-ui-bundle.js    of the package fastapi-swagger
                      ├──▶ /docs/pages.css, /docs/docs.js                      beside this file
                      └──▶ /openapi.json

The pages load nothing from elsewhere, so they work without the internet. The links are relative: behind a proxy they
lead to the proxy. Because of the headers, a browser runs no other script, and shows no page in a frame. The
routes are FastAPI's, not endpoints, so they are not in the document. `sharequeue_http.application.app` checks their
hosts and origins.
"""

import logging
import zlib
from importlib import metadata
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from sharequeue_gateway.http.pages import ui
from sharequeue_http.application.app import App
from sharequeue_http.exchange import request_id_from
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PACKAGE: Final = "fastapi-swagger"
"""Ships the files of Swagger UI as its project releases them. Only these files are used, found by their names."""
SHIPPED: Final = ("swagger-ui.css", "swagger-ui-bundle.js")
OWN: Final = ("pages.css", "docs.js")
HERE: Final = Path(__file__).parent
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
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UI_HEADERS: Final = HEADERS | {
    "Content-Security-Policy": f"{POLICY}; require-trusted-types-for 'script'; trusted-types 'none'"
}
"""`/ui` makes no markup from text: where a browser knows trusted types, it lets nobody try."""


def serve_pages(app: App, kafka_defaults: bool = False) -> None:
    """Add the pages. Without the files of Swagger UI there is no `/docs`, and a warning in the log says so."""
    for address, content, kind in ui.contents(kafka_defaults):
        _serve(app, address, content, kind, UI_HEADERS)

    async def lead(request: Request) -> Response:
        return RedirectResponse("ui", headers={**HEADERS, **_request_id(request)})

    _add(app, "/", lead)
    found = {name: path for name in SHIPPED if (path := _shipped(name)) is not None}
    if len(found) < len(SHIPPED):
        missing = ", ".join(name for name in SHIPPED if name not in found)
        log.warning("there is no /docs: files of a package are missing", extra=fields(package=PACKAGE, files=missing))
        return
    for name, path in {**found, **{name: HERE / name for name in OWN}}.items():
        _serve(app, f"/docs/{name}", path.read_bytes(), ui.KINDS[path.suffix], HEADERS)
    _serve(app, "/docs", (HERE / "docs.html").read_bytes(), ui.HTML, HEADERS)


def _shipped(name: str) -> Path | None:
    """The file of this name in the package, in whatever folder it lies."""
    try:
        files = metadata.files(PACKAGE) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((path for file in files if file.name == name and (path := Path(str(file.locate()))).is_file()), None)


def _serve(app: App, address: str, content: bytes, kind: str, headers: dict[str, str]) -> None:
    """Serve a file, which a browser that has it asks for again without getting it."""
    tag = f'"{zlib.crc32(content):08x}-{len(content)}"'
    fixed = {**headers, "Cache-Control": "no-cache", "Content-Type": kind, "ETag": tag}

    async def answer(request: Request) -> Response:
        own, known = fixed | _request_id(request), request.headers.get("if-none-match", "")
        if tag in known or known == "*":
            return Response(status_code=304, headers=own)
        return Response(content, headers=own)

    _add(app, address, answer)


def _add(app: App, path: str, answer: object) -> None:
    app.add_api_route(path, answer, methods=["GET", "HEAD"], response_model=None, include_in_schema=False)  # type: ignore[arg-type]


def _request_id(request: Request) -> dict[str, str]:
    return {"X-Request-Id": request_id_from(request.headers.get("x-request-id", "").encode())}
