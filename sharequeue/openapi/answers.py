"""The answers of an operation: its success, and by status the problems that it may answer.

Problems that any call may answer are shared components. Those of a call name the codes that are particular to it.
"""

from collections.abc import Mapping
from typing import Any, Final

from sharequeue.openapi.examples import answers, examples_of
from sharequeue.openapi.schemas import Schemas
from sharequeue.protocol.errors import BY_CODE, KAFKA_CODES
from sharequeue.protocol.messages.problems import Problem
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import Error

_HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-Id": {
        "description": "The request's `X-Request-Id`, or a new one. The logs of the services name it.",
        "schema": {"type": "string", "maxLength": 128},
    },
    "Retry-After": {
        "description": "Seconds after which a repeat may succeed.",
        "schema": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 3600},
    },
    "Acknowledge-Failed": {
        "description": "How many acknowledgements failed or have an unknown outcome. Absent if none.",
        "schema": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10_000},
    },
    "WWW-Authenticate": {
        "description": "How to authenticate: `Bearer`, with a key, or with the cluster token where the call wants that.",
        "schema": {"type": "string", "maxLength": 100},
    },
}
_SHARED: Final[Mapping[int, tuple[str, str]]] = {
    400: (
        "Unreadable",
        "INVALID_REQUEST (42): the request cannot be read. Its HTTP is malformed, its `Host` is missing, or its body is "
        "missing, not JSON or not UTF-8. Do not repeat it as it is.",
    ),
    406: (
        "NotAccepted",
        "INVALID_REQUEST (42): the request does not ask for an event stream. Send `Accept: text/event-stream`.",
    ),
    401: (
        "NotAuthenticated",
        "SASL_AUTHENTICATION_FAILED (58): there is no key in the request, or it does not hold. Nothing happened: send one "
        "that holds as `Authorization: Bearer`.",
    ),
    403: (
        "Forbidden",
        "TOPIC_AUTHORIZATION_FAILED (29), GROUP_AUTHORIZATION_FAILED (30), CLUSTER_AUTHORIZATION_FAILED (31) or "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53): the caller lacks the right that `detail` names, whether the thing "
        "exists or not. ORIGIN_NOT_ALLOWED (42): a page of another origin made a call that changes something or acquires "
        "records. Nothing happened.",
    ),
    413: ("TooLarge", "MESSAGE_TOO_LARGE (10): the request is too large. `limit` says how large it may be."),
    415: (
        "NotJson",
        "INVALID_REQUEST (42): the `Content-Type` is not JSON's, or the body has a `Content-Encoding`. Send JSON as it is.",
    ),
    422: (
        "Refused",
        "INVALID_REQUEST (42): the request was read, and something in it is refused. `errors` names the places.",
    ),
    429: (
        "Throttled",
        "THROTTLING_QUOTA_EXCEEDED (89): too many fetches wait, too many streams are open, or too many bytes of requests are "
        "under way. Nothing happened: repeat the request after `Retry-After` seconds.",
    ),
    500: (
        "Failed",
        "UNKNOWN_SERVER_ERROR (-1): a fault of the service. The log names it under `request_id`. The "
        "request may have had an effect.",
    ),
    503: (
        "Unavailable",
        "COORDINATOR_NOT_AVAILABLE (15), KAFKA_STORAGE_ERROR (56) or REQUEST_TIMED_OUT (7): a dependency is away. Repeat "
        "the request after `Retry-After` seconds; if `definite` is false, this one may have had an effect.",
    ),
}
_WITH_BODY: Final = (413, 415, 429)


def takes_key(api: Api) -> bool:
    """Return whether callers show a key. Supervisors ask without one."""
    return api.path not in ("/livez", "/readyz", "/v1")


def shared_responses(schemas: Schemas) -> dict[str, Any]:
    responses = {name: _problem(text, status, schemas) for status, (name, text) in _SHARED.items()}
    return {**responses, "AnyProblem": _problem("Any other problem. `status` and `code` say which.", 0, schemas)}


def shared_headers(schemas: Schemas) -> dict[str, Any]:
    return {name: {**header, "schema": schemas.part(header["schema"])} for name, header in _HEADERS.items()}


def responses(api: Api, schemas: Schemas) -> dict[str, Any]:
    """All responses of a call, by status."""
    success = _success(api, schemas)
    found = {
        str(api.status): success,
        **{str(status): success for status in api.also},
        **{str(status): problem for status, problem in sorted(_problems(api, schemas).items())},
        "default": {"$ref": "#/components/responses/AnyProblem"},
    }
    for example in examples_of(api):
        if example.name in answers():
            content = next(iter(found[str(example.answered)]["content"].values()))
            shown = {"summary": example.summary, "value": answers()[example.name]}
            content.setdefault("examples", {})[example.name] = shown
    return found


def _success(api: Api, schemas: Schemas) -> dict[str, Any]:
    acknowledges = api.tag == "Records" and "failed_count" in getattr(api.response, "__struct_fields__", ())
    names = ["X-Request-Id", *(["Acknowledge-Failed"] if acknowledges else [])]
    success: dict[str, Any] = {"headers": _headers(names)}
    if api.streams:
        success["description"] = (
            "Server-Sent Events without an end. An event without a name has a FetchResponse in its data, `problem` and "
            "`closed` have a Problem. Each event with records has an `id`."
        )
        success["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif api.response is not None:
        success["description"] = schemas.text(api.response)
        success["content"] = {"application/json": {"schema": schemas.reference(api.response)}}
    elif api.status == 204:
        success["description"] = "It is done. The answer has no body."
    else:
        success["description"] = "Text, one line for each series."
        success["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return success


def _problems(api: Api, schemas: Schemas) -> dict[int, dict[str, Any]]:
    found = dict(_particular(api, schemas))
    may = [400, 500]
    if api.tag != "Operations":
        may.append(503)
    if api.request is not None or "{" in api.path:
        may.append(422)
    if api.takes_body:
        may += _WITH_BODY
    if takes_key(api):
        may += (401, 403)
    if api.streams:
        may += (406, 429)
    for status in may:
        if status not in found and status not in (api.status, *api.also):
            found[status] = {"$ref": f"#/components/responses/{_SHARED[status][0]}"}
    return found


def _particular(api: Api, schemas: Schemas) -> dict[int, dict[str, Any]]:
    """The problems whose codes are particular to a call, and for their statuses what any call may answer."""
    codes: dict[int, list[Error]] = {}
    for code in (*api.errors, *(() if api.needs is None else ("UNSUPPORTED_VERSION",))):
        codes.setdefault(BY_CODE[code].status, []).append(BY_CODE[code])
    problems = {}
    for status, errors in codes.items():
        lines = [f"{error.code} ({KAFKA_CODES[error]}): {error.title[0].lower()}{error.title[1:]}." for error in errors]
        shared = _SHARED.get(status)
        if shared is not None and (api.takes_body or status in (403, 422, 503)):
            lines.append(shared[1])
        problems[status] = _problem(" ".join(lines), status, schemas)
    return problems


def _problem(text: str, status: int, schemas: Schemas) -> dict[str, Any]:
    names = ["X-Request-Id"]
    if status in (429, 503):
        names.append("Retry-After")
    if status == 401:
        names.append("WWW-Authenticate")
    content = {"application/problem+json": {"schema": schemas.reference(Problem)}}
    return {"description": text, "headers": _headers(names), "content": content}


def _headers(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
