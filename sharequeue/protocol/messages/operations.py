"""The answers of `/livez` and `/readyz`, and the answer without content."""

from typing import Annotated

from sharequeue.protocol.messages.fields import Response, word

ReadinessStatus = Annotated[
    str,
    word(
        "ReadinessStatus",
        "`ready`; `degraded`: it works, with less; `unavailable`: it cannot do its work.",
        ("ready", "degraded", "unavailable"),
    ),
]


class Empty(Response):
    """An answer without content."""


class Readiness(Response):
    """`ready`, `degraded` (works, with less) or `unavailable`, and the same for each dependency.

    `gateways`: in the answer of a gateway, the node ids of the gateways that share the work.
    """

    status: ReadinessStatus
    """The worst state of all dependencies. With `unavailable` the status of the answer is 503."""
    dependencies: dict[str, str]
    """For each dependency `ready`, or what is wrong with it."""
    gateways: list[str] = []
    """At a gateway, the node ids of all gateways with a live lease, in ascending order."""
