"""The answers of `/livez` and `/readyz`, and the answer without content."""

from sharequeue.protocol.messages.fields import Response


class Empty(Response):
    """An answer without content."""


class Readiness(Response):
    """`ready`, `degraded` (works, with less) or `unavailable`, and each dependency's own word.

    `gateways`: of a gateway, those that share the work with it, by node id.
    """

    status: str
    dependencies: dict[str, str]
    gateways: list[str] = []
