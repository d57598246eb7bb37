"""Finds the endpoint that answers a request: a tree of the paths of all calls."""

from functools import lru_cache
from typing import Any, Final

from sharequeue_http.application.endpoint import Endpoint
from sharequeue_http.exchange import Found, split_path

MOST_KNOWN: Final = 1024
LONGEST_KNOWN: Final = 256
"""`Paths.known` is for paths of at most so many bytes."""


class Paths:
    """Endpoints by method and path: a tree with a branch for each segment. The branch None takes any segment."""

    END: Final = "/"  # no segment can be that

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []
        self._methods: dict[str, dict[str | None, Any]] = {}
        self.known = lru_cache(MOST_KNOWN)(self.find)
        """As `find`, for a path that may come again."""

    def add(self, endpoint: Endpoint) -> None:
        self.endpoints.append(endpoint)
        for method in ("GET", "HEAD") if endpoint.api.method == "GET" else (endpoint.api.method,):
            branch = self._methods.setdefault(method, {})
            names = []
            for segment in endpoint.api.path.split("/"):
                parameter = segment.startswith("{")
                if parameter:
                    names.append(segment[1:-1])
                branch = branch.setdefault(None if parameter else segment, {})
            branch[self.END] = (endpoint, names)

    def methods(self, sent: bytes) -> list[str]:
        """The methods that have an endpoint at a path. A path with fewer parameters goes before, as in OpenAPI:
        `…/offsets/reset` does not allow the methods of `…/offsets/{topic}`."""
        found = {method: match for method in self._methods if (match := self.find(method.encode(), sent)) is not None}
        fewest = min((len(match.parameters) for match in found.values()), default=0)
        return sorted(method for method, match in found.items() if len(match.parameters) == fewest)

    def find(self, method: bytes, sent: bytes) -> Found | None:
        """The endpoint of a request, or None. `sent`: the path as it was sent; the wire has checked its bytes."""
        segments, path = split_path(sent.decode())
        branch = self._methods.get(method.decode())
        values = []
        for segment in segments:
            if branch is None:
                return None
            if segment != self.END and segment in branch:
                branch = branch[segment]
            else:
                branch = branch.get(None) if segment else None
                values.append(segment)
        if branch is None or self.END not in branch:
            return None
        endpoint, names = branch[self.END]
        return Found(endpoint, dict(zip(names, values, strict=True)), path)
