"""The application of the gateway: every call, and its handler."""

from collections.abc import Iterable
from typing import Any

from sharequeue.openapi import serve_openapi
from sharequeue.protocol import apis, capabilities
from sharequeue.protocol.messages.operations import ServiceDescription
from sharequeue_gateway.http.pages import serve_pages
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call, Guard, Handler
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.api import Api
from sharequeue_http.origins import Callers

BOUNDED = (
    apis.PRODUCE_RECORDS,
    apis.PRODUCE_ARROW,
    apis.PRODUCE_RAW_RECORD,
    apis.SCHEDULE_RECORDS,
    apis.COMMIT_TRANSACTION,
    apis.APPEND_HERE,
)
"""The calls whose bytes in hand are bounded together. A commit may have 10,000 acknowledgements."""
DESCRIPTION = "Kafka share groups over HTTP: per-record locks, acknowledgements and dead letters on a replayable log."


def create_gateway_app(
    calls: Iterable[tuple[Api, Handler]],
    *,
    callers: Callers,
    cluster_token: str,
    max_request_bytes: int,
    admission: Ceiling,
    guard: Guard | None,
    service: ServiceDescription,
    kafka_defaults: bool = False,
) -> App:
    """The application of one gateway. `guard`: of the calls that clients make; None: everybody may make them.
    `service`: the answer of describeService.
    Raises: ValueError: a row does not say what its callers need."""
    app = App("sharequeue", DESCRIPTION, callers)
    for api, handler in calls:
        serve(
            app,
            api,
            within(api, handler, service),
            max_request_bytes=max_request_bytes,
            cluster_token=cluster_token,
            admission=admission if api in BOUNDED else None,
            guard=None if api.internal and api.access is None else guard,
        )

    async def describe(_: Call) -> ServiceDescription:
        return service

    serve(app, apis.DESCRIBE_SERVICE, describe, guard=guard)
    serve_openapi(app, DESCRIPTION)
    serve_pages(app, kafka_defaults)
    return app


def within(api: Api, handler: Handler, service: ServiceDescription) -> Handler:
    """The handler of a call; if the service lacks capabilities, it refuses the requests that need one of them first."""
    offered, needs = frozenset(service.capabilities), api.needs
    if needs is None or offered == capabilities.ALL:
        return handler

    async def checked(call: Call) -> Any:
        capabilities.check(needs, call, offered)
        return await handler(call)

    return checked
