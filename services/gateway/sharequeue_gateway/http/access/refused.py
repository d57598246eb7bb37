"""The names of a call that the rights of now refuse, beside others that its handler serves."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.access import Operation, ResourceType
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue_gateway.delivery.acknowledging import failed
from sharequeue_http.forms.errors import ApiError, exception_type
from sharequeue_http.forms.mistakes import quoted


class Refused(dict[str, ApiError]):
    """The refused names of a request, with their errors. Any other name is decided when a handler looks it up: one that
    a share session keeps, or that the answer alone would show."""

    def __init__(self, found: Mapping[str, ApiError], decide: Callable[[str], ApiError | None]) -> None:
        super().__init__(found)
        self.decide = decide

    def get(self, name: str, _: object = None) -> ApiError | None:  # type: ignore[override]
        return super().get(name) or self.decide(name)

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None


def refusal(principal: str, operation: Operation, resource_type: ResourceType, name: str) -> ApiError:
    error, what = BY_CODE[f"{resource_type}_AUTHORIZATION_FAILED"], resource_type.lower().replace("_", " ")
    detail = f"{principal} needs the right {operation} on the {what} {quoted(name)!r}"
    return exception_type(error)(detail, error=error)


async def acknowledge_others(
    group_id: str,
    request: LeaderAcknowledgeRequest,
    refused: Mapping[str, ApiError],
    acknowledge: Callable[[str, LeaderAcknowledgeRequest], Awaitable[list[AcknowledgementResult]]],
) -> list[AcknowledgementResult]:
    """Apply the acknowledgements of topics that are not refused. Returns: the results of all, in request order."""
    if not refused:
        return await acknowledge(group_id, request)
    acknowledgements = request.acknowledgements
    errors = [refused.get(each.topic) for each in acknowledgements]  # once: rights may change during the write
    others = [each for each, error in zip(acknowledgements, errors, strict=True) if error is None]
    request = structs.replace(request, acknowledgements=others)
    results = iter(await acknowledge(group_id, request) if others else ())
    return [next(results) if error is None else failed(error) for error in errors]
