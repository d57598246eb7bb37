"""The examples of the document: one story from an empty stack on, in the order in which its calls succeed.

story.json beside this file has the requests. The answers are those of a real stack, in examples.json: a test plays the
story and compares (`tests/http/test_examples.py`).
"""

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api

_CALLS: Final = {api.operation_id: api for api in vars(apis).values() if isinstance(api, Api)}


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One call of the story."""

    name: str
    """A word for the example, distinct among all."""
    call: str
    """Its operation id."""
    summary: str
    path: dict[str, Any] = {}
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Any = None
    raw: bytes | None = None
    """The body of a call that takes bytes."""
    status: int | None = None
    """The status of the answer, if it is not the call's usual one."""
    eventual: bool = False
    """Whether the answer may come only after a while, as gateways write counts and dead letters in the background."""
    varies: bool = False
    """Whether each answer is another one, with the time: the document shows one of them."""

    @property
    def api(self) -> Api:
        return _CALLS[self.call]

    @property
    def answered(self) -> int:
        return self.api.status if self.status is None else self.status


STORY: Final = msgspec.json.decode(files(__package__).joinpath("story.json").read_bytes(), type=tuple[Example, ...])


@functools.cache
def answers() -> Mapping[str, Any]:
    """The answers by the names of the examples; an example without an answer is absent."""
    recorded: dict[str, Any] = msgspec.json.decode(files(__package__).joinpath("examples.json").read_bytes())
    return recorded


def examples_of(api: Api) -> Iterator[Example]:
    """The examples of a call, in the order of the story."""
    return (example for example in STORY if example.call == api.operation_id)
