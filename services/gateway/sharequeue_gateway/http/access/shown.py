"""Lists of an answer without the names that a caller may not see."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sharequeue.protocol.access.columns import Shown
from sharequeue_http.answer import Answer
from sharequeue_http.forms.codec import encode

Sees = Callable[[Shown, str], bool]


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
