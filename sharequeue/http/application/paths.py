"""Which endpoint answers a request: a tree of the paths of all calls."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from sharequeue.http.application.endpoint import Endpoint


class Found(NamedTuple):
    """The endpoint of a request, and the decoded path with its parameters."""

    endpoint: Endpoint
    parameters: Mapping[str, str]
    path: str
    query: bytes


def split_path(path: str) -> tuple[list[str], str]:
    """The decoded segments of a path, and the decoded path. A slash within a segment stays encoded in the path."""
    segments = path.split("/")
    if "%" in path:
        segments = [unquote(segment) for segment in segments]
        path = "/".join(segment.replace("/", "%2F") for segment in segments)
    return segments, path


class Paths:
    """Endpoints by method and path: a tree with a branch for each segment. The branch None takes any segment."""

    END: Final = "/"  # no segment can be that
    MOST_KNOWN: Final = 1024
    LONGEST_KNOWN: Final = 256

    def __init__(self) -> None:
        self.endpoints: list[Endpoint] = []
        self._methods: dict[str, dict[str | None, Any]] = {}
        self._known = lru_cache(self.MOST_KNOWN)(self._find)

    def add(self, endpoint: Endpoint) -> None:
        self.endpoints.append(endpoint)
        branch = self._methods.setdefault(endpoint.api.method, {})
        names = []
        for segment in endpoint.api.path.split("/"):
            parameter = segment.startswith("{")
            if parameter:
                names.append(segment[1:-1])
            branch = branch.setdefault(None if parameter else segment, {})
        branch[self.END] = (endpoint, names)

    def find(self, method: bytes, target: bytes) -> Found | None:
        """The endpoint of a request, or None. `target`: path and query as they were sent.

        Requests of one path share what is known of it, with any queries.
        """
        sent, mark, query = target.partition(b"?")
        found = self._known(method, sent) if len(sent) <= self.LONGEST_KNOWN else self._find(method, sent)
        if found is None or not mark:
            return found
        return found._replace(query=query) if query.isascii() and b"#" not in query else None

    def _find(self, method: bytes, sent: bytes) -> Found | None:
        if not sent.startswith(b"/") or not sent.isascii() or b"#" in sent:
            return None
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
        return Found(endpoint, dict(zip(names, values, strict=True)), path, b"")
