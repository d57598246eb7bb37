"""Decides what a call may not do, by the rights that hold now, and keeps names that fail alone beside the others.

Decisions   the needs of a call, by name: an error for the whole call, or its refused names
Refused     those names, for a handler that serves the rest
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sharequeue.protocol.access.columns import Names
from sharequeue.protocol.access.rights import Operation, ResourceType, Rights
from sharequeue.protocol.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue_gateway.access.book import AccessBook
from sharequeue_gateway.delivery.acknowledging import failed
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.forms.mistakes import quoted

_FAILED: Final[Mapping[ResourceType, type[ApiError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
}
NOTHING: Final[Mapping[str, ApiError]] = {}
MOST_ANSWERED: Final = 1024


class Refused(Mapping[str, ApiError]):
    """The refused names of a request, with their errors. Any other name is decided when a handler looks it up: one that
    a share session keeps, or that the answer alone would show."""

    def __init__(self, found: Mapping[str, ApiError], decide: Callable[[str], ApiError | None]) -> None:
        self._found = found
        self._decide = decide

    def __getitem__(self, name: str) -> ApiError:
        error = self._found.get(name) or self._decide(name)
        if error is None:
            raise KeyError(name)
        return error

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


Refusal = Callable[[str], ApiError | None]
"""Returns the error of a name that the rights of now refuse; None: they do not."""


class Answered(NamedTuple):
    """A need of a call, and what the rights of one principal answer. `others`: `Call.refused` where no name is
    refused."""

    names: Names
    each: bool
    may: Mapping[str, bool]
    refusal: Refusal
    others: Refused


class Decisions:
    """Decides by the rights of the book. Most calls name what others named, so what the rights answer a principal about
    a call is remembered until they change."""

    def __init__(self, book: AccessBook) -> None:
        self._book = book
        self._answered: dict[tuple[str, str], Sequence[Answered]] = {}
        """By principal and operation, by the rights of then."""
        self._answered_by: Rights | None = None

    def refused(self, principal: str, api: Api, path: Mapping[str, str], request: Any) -> Mapping[str, ApiError]:
        """The names of a request that are refused while the rest is served. Raises: ApiError: the whole call is."""
        refused = NOTHING
        if self._book.rights is not self._answered_by:
            self._answered, self._answered_by = {}, self._book.rights
        answers = self._answered.get((principal, api.operation_id)) or self._answers(principal, api)
        for names, each, may, refusal, others in answers:
            errors = None
            for name in names(path, request):
                if may[name] or (error := refusal(name)) is None:
                    continue
                if not each:
                    raise error
                errors = errors or {}
                errors[name] = error
            if each:
                refused = others if errors is None else Refused(errors, refusal)
        return refused

    def _answers(self, principal: str, api: Api) -> Sequence[Answered]:
        if len(self._answered) >= MOST_ANSWERED:
            self._answered.clear()
        found = self._answered[principal, api.operation_id] = []
        for operation, resource_type, names, each in api.access.needs:
            refusal = partial(self.refusal, principal, operation, resource_type)
            may = self._book.rights.answers(principal, operation, resource_type)
            found.append(Answered(names, each, may, refusal, Refused({}, refusal)))
        return found

    def refusal(self, principal: str, operation: Operation, resource_type: ResourceType, name: str) -> ApiError | None:
        if self._book.rights.allows(principal, operation, resource_type, name):
            return None
        what = resource_type.lower().replace("_", " ")
        return _FAILED[resource_type](f"{principal} needs the right {operation} on the {what} {quoted(name)!r}")


async def acknowledge_others(
    acknowledgements: Sequence[Acknowledgement],
    refused: Mapping[str, ApiError],
    acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[list[AcknowledgementResult]]],
) -> list[AcknowledgementResult]:
    """Apply the acknowledgements of topics that are not refused. Returns: the results of all, in request order."""
    if not refused:
        return await acknowledge(acknowledgements)
    errors = [refused.get(each.topic) for each in acknowledgements]  # once: rights may change during the write
    others = [each for each, error in zip(acknowledgements, errors, strict=True) if error is None]
    results = iter(await acknowledge(others) if others else ())
    return [next(results) if error is None else failed(error) for error in errors]
