"""The answers of `/livez` and `/readyz`, and the answer without content."""

from sharequeue.protocol.messages.fields import Response


class Empty(Response):
    """An answer without content."""


class Readiness(Response):
    """`ready`, `degraded` (works, with less) or `unavailable`, and the same for each dependency.

    `gateways`: in the answer of a gateway, the node ids of the gateways that share the work.
    """

    status: str
    dependencies: dict[str, str]
    gateways: list[str] = []
