"""Lists of an answer without the names that a caller may not see."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from sharequeue.protocol.access.columns import Shown
from sharequeue_gateway.http.access.refused import Refused
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.codec import encode

Sees = Callable[[Shown, str], bool]
AT_ONCE: Final = 1000
"""Names that are decided about at a time."""


async def page_of(call: Call, place: str, name: str, kind: Any, ask: Callable[[Any], Awaitable[bytes]]) -> Any:
    """A page of a list whose tokens are names. The token of a page that a caller may see in part is a name that it may
    see: further pages are asked for until this one is full.

    Args:
        place, name: the members of the answer, and of its entries, that have the list, and the name of an entry.
        kind: of the answer. ask: takes the request of a page.
    """
    if not isinstance(call.refused, Refused):
        return Answer(await ask(call.request))
    size, seen = call.request.page_size, []
    request = msgspec.structs.replace(call.request, page_size=AT_ONCE)
    while True:
        page = msgspec.json.decode(await ask(request), type=kind)
        seen += [entry for entry in getattr(page, place) if getattr(entry, name) not in call.refused]
        if page.next_page_token is None or len(seen) > size:
            break
        request = msgspec.structs.replace(request, page_token=page.next_page_token)
    token = getattr(seen[size - 1], name) if len(seen) > size else None
    return msgspec.structs.replace(page, **{place: seen[:size], "next_page_token": token})


def filtered(result: Any, shows: Sequence[Shown], sees: Sees) -> Answer:
    """The answer of a handler without hidden entries.

    Args:
        result: a message, or an Answer whose body is one.
    """
    answer = result if isinstance(result, Answer) else Answer(encode(result))
    message = msgspec.json.decode(answer.body)
    for shown in shows:
        _hide(message, shown.place.split("."), shown, sees)
    return Answer(encode(message), status=answer.status, headers=answer.headers)


def _hide(message: Any, place: Sequence[str], shown: Shown, sees: Sees) -> None:
    for each in message if isinstance(message, list) else (message,):
        if not isinstance(each, dict) or place[0] not in each:
            continue
        if len(place) > 1:
            _hide(each[place[0]], place[1:], shown, sees)
        elif each[place[0]] is not None:
            each[place[0]] = [entry for entry in each[place[0]] if _is_seen(entry, shown, sees)]


def _is_seen(entry: Any, shown: Shown, sees: Sees) -> bool:
    name = entry.get(shown.name) if shown.name else entry
    return shown.unnamed if name is None else sees(shown, name)
