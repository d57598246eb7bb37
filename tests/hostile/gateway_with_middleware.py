"""A gateway whose application has middleware: `python gateway_with_middleware.py refuse` or `… pass`."""

import sys

from fastapi import Request
from sharequeue_gateway import __main__ as program
from sharequeue_gateway.settings import Settings
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import Response

from sharequeue.http.application.app import App
from sharequeue.service.service import Service

prepare_gateway = program.prepare


async def refuse_or_pass(request: Request, call_next: RequestResponseEndpoint) -> Response:
    if sys.argv[1] == "refuse":
        return Response(status_code=403)
    response = await call_next(request)
    response.headers["seen"] = request.url.path
    return response


async def prepare(settings: Settings) -> Service:
    service = await prepare_gateway(settings)
    assert isinstance(service.app, App)
    service.app.add_middleware(BaseHTTPMiddleware, dispatch=refuse_or_pass)
    return service


if __name__ == "__main__":
    program.prepare = prepare  # type: ignore[assignment]
    sys.exit(program.main())
