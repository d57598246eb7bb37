"""Dead letters: calls of a gateway."""

from functools import partial

from sharequeue.protocol import capabilities
from sharequeue.protocol.access.columns import Access, Need, always, given, group, topics
from sharequeue.protocol.errors import GROUP_ERRORS, TOPIC_ERRORS
from sharequeue.protocol.messages import dead_letters as messages
from sharequeue.protocol.messages.access import Operation
from sharequeue_http.forms.api import Api


def _needs(operation: Operation) -> tuple[Need, ...]:
    """READ on the group; on the topic of each record the operation, without which its dead letter is left out."""
    return (group("READ"), topics(operation, given("topic")), topics(operation, lambda _, __: (), each=True))


_call = partial(Api, tag="Groups", errors=(*GROUP_ERRORS, *TOPIC_ERRORS), idempotent=True)
LIST_DEAD_LETTERS = _call(
    "listDeadLetters",
    "GET /v1/share-groups/{group}/dead-letters",
    "List a group's dead letters, with their reasons, and what became of them.",
    description="Those that are open, or with `closed` all that are still in their topic. Dead letters that were "
    "deleted from `dlq.<group>` are not listed.",
    request=messages.ListDeadLettersQuery,
    response=messages.DeadLetterList,
    access=Access(_needs("READ")),
)
DROP_DEAD_LETTERS = _call(
    "dropDeadLetters",
    "POST /v1/share-groups/{group}/dead-letters/drop",
    "Close dead letters of a group for good: they are open no more, and are never sent back.",
    description="It does what a worker does that accepts a record nobody needs, so it needs the same rights. Other "
    "groups, and the records in their topics, stay as they are; the dead letters stay in `dlq.<group>`.",
    request=messages.DropDeadLettersRequest,
    response=messages.DropResult,
    access=Access(_needs("READ"), audited=always),
)
REDRIVE_DEAD_LETTERS = _call(
    "redriveDeadLetters",
    "POST /v1/share-groups/{group}/dead-letters/redrive",
    "Send a group's dead letters back to their topics.",
    description="Each dead letter is sent once, however often the call is made, so a call whose answer was lost may be "
    "made again. Dead letters stay in `dlq.<group>`.",
    request=messages.RedriveDeadLettersRequest,
    response=messages.RedriveResult,
    access=Access(_needs("WRITE"), audited=always),
    needs=capabilities.in_redrive,
)
