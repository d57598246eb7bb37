"""False alarms of schemathesis, each with its reason; and valid values in the place of those it would make up."""

from typing import Any, Final

import pyarrow as pa
import schemathesis
from hypothesis import strategies as st

from sharequeue.protocol.apis import ARROW_STREAM

SHORT_WAIT_MS: Final = 10
RULES: Final = (
    # One of several fields, or one that needs another: a schema says so by `oneOf`, which code generators turn into
    # classes that nobody wants.
    "give exactly one of",
    "give key or key_base64, not both",
    "needs the type",
    "needs a transactional_id",
    "needs an Idempotency-Key",
    "needs to: ",
    "needs topic",
    "must not come with",
    "needs an offset",
    "must name a topic when a member joins",
    "name topics or topic_partitions",
    "cannot acknowledge",
    "with is_renew_ack nothing is fetched",
    "renew in a fetch needs is_renew_ack",
    # How one value stands to another.
    "is after last_offset",
    "give one, or one each",
    "must ascend",
    "is named twice",
    "is not an ascending range",
    # Patterns are ASCII, so they let through the control characters U+0080 to U+009F.
    "must not hold",
    # A schema names the encoding of a text, and what it generates is any text.
    "not base64",
    "datetime must be as",
    "is not one that",  # a page token of this service
    # What the service alone knows: what a key was used for before (422 is what the IETF's draft on the header asks
    # for), the time, what was fetched, which topics are compacted.
    "was used for a request with another body",
    "ahead of now",
    "was never fetched",
    "is not compacted",
    "is the newest one",
)
"""Rules that no schema states. Other codes than INVALID_REQUEST stand for such a rule each: names that are reserved,
settings, offsets beyond the log."""


NOT_ASKED_FOR: Final = 406
"""A stream never ends, so no request asks for one: without `Accept: text/event-stream` it is refused."""
ANY_HEADER: Final = "in header - object with unexpected properties"
"""HTTP lets a request have headers of any name."""


def _stream(texts: list[str]) -> bytes:
    """An Arrow stream with a record for each text."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"value": pa.array(texts, pa.string())})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
schemathesis.openapi.media_type(ARROW_STREAM, st.lists(_TEXTS, min_size=1, max_size=5).map(_stream))


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Integers as JSON's writers write them: for JSON Schema 5.0 is an integer too, here it is refused (docs/api.md).

    A fetch waits a moment at most: thousands of them are made.
    """
    body = _integers(body)
    if isinstance(body, dict) and context.operation.path.endswith("/fetch"):
        wait_ms = body.setdefault("max_wait_ms", SHORT_WAIT_MS)
        if wait_ms is None or (type(wait_ms) is int and wait_ms > SHORT_WAIT_MS):
            body["max_wait_ms"] = SHORT_WAIT_MS
    return body


def _integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _integers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_integers(inner) for inner in value]
    return value


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Any, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Whether a failure counts."""
    if case.operation.path.endswith("/stream") and response.status_code == NOT_ASKED_FOR:
        return failure.code not in ("ST201", "ST202")
    if failure.code == "ST202" and response.status_code == 422:
        problem = response.json()
        return problem["code"] == "INVALID_REQUEST" and not any(rule in problem["detail"] for rule in RULES)
    if failure.code == "ST205":
        return not case.operation.path.endswith("/offsets/reset")  # DELETE is offsets/{topic}: a topic may be called so
    if failure.code == "ST201":
        return not (_refuses_inside(response) or ANY_HEADER in failure.message or _has_null(case.body))
    return True


def _has_null(value: Any) -> bool:
    """Whether it has `null` for an absent field: it is taken, and the document leaves it out for generated types."""
    if isinstance(value, dict):
        return any(inner is None or _has_null(inner) for inner in value.values())
    return isinstance(value, list) and any(_has_null(inner) for inner in value)


def _refuses_inside(response: schemathesis.Response) -> bool:
    """Whether the answer says of a part that it failed: those are data inside a 200 (docs/api.md)."""
    answer = response.json()
    return isinstance(answer, dict) and bool(answer.get("failed_count") or answer.get("errors"))
