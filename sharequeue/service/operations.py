"""The calls by which each service describes itself: whether it runs, whether it can work, and its metrics.

Where `operations_port` is set, a listener of its own says all of it to anybody who reaches it. The one that clients
call has a bare `/readyz` then, but for other services, which show the cluster token.
"""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Gauge, disable_created_metrics, generate_latest

from sharequeue import __version__
from sharequeue.protocol import apis
from sharequeue.protocol.messages.operations import Empty, Readiness, ReadinessQuery
from sharequeue.service import time_line
from sharequeue.service.series import plain
from sharequeue.slices import Slices
from sharequeue_http import problems
from sharequeue_http.answer import Answer
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call, Guard
from sharequeue_http.distribution import registry_of
from sharequeue_http.forms.codec import encode
from sharequeue_http.log import SERVICE

ReadinessCheck = Callable[[bool], Awaitable[Readiness]]
"""The answer of `/readyz`; its argument is whether `strict` was asked for."""

BUILD = Gauge("sharequeue_build_info", "1, with the version of this service as a label.", ["version"])
BUILD.labels(__version__).set(1)
_HELP: Final = re.compile("^# HELP .*$", re.MULTILINE)


class Operations(NamedTuple):
    """The answers of a service about itself.

    `series`: parts of `/metrics` besides the registries of prometheus_client; they are written in slices. `guard`:
    asked who may read the metrics where clients call; None: everybody.
    """

    ready: ReadinessCheck
    series: Callable[[], Iterator[str]] | None = None
    guard: Guard | None = None


def serve_operations(app: App, operations: Operations, cluster_token: str, *, apart: bool = False) -> App:
    """Add `/livez`, `/readyz` and `/metrics`: the metrics of this service, and those of its process.

    Args:
        apart: whether an application of their own has them, and `app` only `/livez` and the status of `/readyz`.
    Returns: the application that has all three.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double every counter
    for family in (problems.REFUSED, time_line.STARTS, time_line.WENT_BACK):
        family()  # so that it is there before its first event
    for status in problems.COUNTED:
        problems.REFUSED().labels(str(status))
    registries = registry_of(SERVICE.get()), REGISTRY
    scraping = asyncio.Lock()
    ready, series, guard = operations

    async def livez(_: Call) -> Empty:
        return Empty()

    async def readyz(call: Call, bare: bool = False) -> Answer:
        request: ReadinessQuery = call.request
        readiness = await ready(request.strict)
        sent = dict(call.exchange.headers).get(b"authorization", b"")
        if bare and not hmac.compare_digest(sent, f"Bearer {cluster_token}".encode()):
            readiness = Readiness(status=readiness.status, dependencies={})
        return Answer(encode(readiness), status=503 if readiness.status == "unavailable" else 200)

    async def metrics(_: Call) -> Answer:
        async with scraping:  # one answer is written at a time, however many are asked for
            text = b"".join(map(generate_latest, registries)).decode()
            parts = [_HELP.sub(lambda found: plain(found[0]), text).encode()]
            slices = Slices()
            for part in () if series is None else series():
                parts.append(part.encode())
                if slices.over():
                    await slices.pause()
        return Answer(b"".join(parts), headers=((b"content-type", CONTENT_TYPE_LATEST.encode()),))

    if apart:
        serve(app, apis.LIVEZ, livez, guard=guard)
        serve(app, apis.READYZ, partial(readyz, bare=True), guard=guard)
        app, guard = App(f"{app.title}: operations", "What this service says about itself.", app.callers), None
    serve(app, apis.LIVEZ, livez, guard=guard)
    serve(app, apis.READYZ, readyz, guard=guard)
    serve(app, apis.METRICS, metrics, guard=guard)
    return app
