"""Spans of OpenTelemetry, with its names for messaging, and the header `traceparent` of records.

Only where the program has imported `opentelemetry.trace` and has set a provider of traces: nothing here imports it, and
other libraries import it without a provider, so that spans would go nowhere.

    send (in the program's own trace) ── header traceparent ──▶ process (around a worker's function) ──▶ settle
"""

import contextlib
import importlib
import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

SYSTEM: Final = "sharequeue"
MOST_LINKS: Final = 128
"""Of one span: what an SDK keeps by default."""

_NOTHING: Final = contextlib.nullcontext()

Span = Any
"""A span of OpenTelemetry, which the client does not import; None: there is none."""


def wanted() -> bool:
    """Tell whether the program traces with OpenTelemetry."""
    return _api() is not None


def start(
    operation: str, topic: str, kind: str, of: Iterable[Mapping[str, str]] = (), more: Mapping[str, object] = {}
) -> Span:
    """Start a span.

    Args:
        kind: a name of SpanKind.
        of: the headers of the records that it is about. It is in the trace of the first of them that has one, and not
            in that of the code that runs: a worker's tasks begin wherever its loop was started.
        more: attributes, by their names below `messaging`.
    """
    api = _api()
    if api is None:
        return None
    carrying = (headers for headers in islice(of, MOST_LINKS) if "traceparent" in headers)
    contexts = [_propagator().extract(headers) for headers in carrying]
    return api.get_tracer(SYSTEM).start_span(
        f"{operation} {topic}",
        context=contexts[0] if contexts else None,
        kind=api.SpanKind[kind],
        links=[api.Link(api.get_current_span(context).get_span_context()) for context in contexts],
        attributes={
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            **{f"messaging.{name}": value for name, value in more.items()},
        },
    )


def carried(span: Span, headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers of a record, with the context of the span that sends it. A `traceparent` of the program stays."""
    if headers is not None and "traceparent" in headers:
        return headers
    made = dict(headers or {})
    _propagator().inject(made, context=sys.modules["opentelemetry.trace"].set_span_in_context(span))
    return made


def end(span: Span, error: str = "", detail: str | None = None) -> None:
    """End a span. `error`: the kind of its failure; "": it succeeded."""
    if span is None:
        return
    if error:
        span.set_attribute("error.type", error)
        span.set_status(sys.modules["opentelemetry.trace"].StatusCode.ERROR, detail)
    span.end()


def current(span: Span) -> contextlib.AbstractContextManager[object]:
    """Return a context whose code runs in a span, and which does not end it."""
    if span is None:
        return _NOTHING
    use_span = sys.modules["opentelemetry.trace"].use_span
    used: contextlib.AbstractContextManager[object] = use_span(
        span, record_exception=False, set_status_on_exception=False
    )
    return used


def _api() -> Any:
    """The module of a program that has set a provider; None: it has not."""
    api = sys.modules.get("opentelemetry.trace")
    return None if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider) else api


def _propagator() -> Any:
    """W3C's, of a program that has imported OpenTelemetry."""
    return importlib.import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
