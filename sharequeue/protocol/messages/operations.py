"""The answers of `/livez` and `/readyz`, and the answer without content."""

from typing import Annotated

from sharequeue.protocol.messages.fields import Request, Response, word

ReadinessStatus = Annotated[
    str,
    word(
        "ReadinessStatus",
        "`ready`; `degraded`: it works, with less; `unavailable`: send its calls elsewhere.",
        ("ready", "degraded", "unavailable"),
    ),
]


class Empty(Response):
    """An answer without content."""


class ReadinessQuery(Request):
    """The strictness of `/readyz`."""

    strict: bool = False
    """`true`: a gateway without the record log or a share coordinator is `unavailable`, even if all others are too.
    A coordinator is `unavailable` without PostgreSQL with any value."""


class Readiness(Response):
    """The health of a service, and of each of its dependencies."""

    status: ReadinessStatus
    """`unavailable` comes with the status 503, the others with 200."""
    dependencies: dict[str, str]
    """For each dependency `ok`, or what is wrong with it."""
    lacks: list[str] = []
    """The dependencies that are missing now; empty if the service is `ready`."""
    works: list[str] = []
    """At a gateway, the kinds of calls that can succeed now: `produce`, `fetch`, `acknowledge`, `manage`."""
    gateways: list[str] = []
    """At a gateway, the node ids of all gateways with a live lease, in ascending order."""


class ServiceDescription(Response):
    """The store of a service, and its capabilities."""

    record_log: Annotated[str, word("RecordLogKind", "The store of the records.", ("postgres", "kafka"))]
    """The store of the records."""
    capabilities: list[str]
    """What this record log can do and another one may lack, in alphabetical order."""
