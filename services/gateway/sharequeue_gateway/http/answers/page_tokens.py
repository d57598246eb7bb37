"""Page tokens: the place where a page ended. A caller sends the token back to get the next page, and cannot read it:
the page may end at an entry that this caller may not see."""

import base64
import binascii
import hashlib
import os
from collections.abc import Callable, Sequence
from operator import xor
from typing import Annotated, Any, Final, TypeVar

import msgspec

from sharequeue.protocol.messages.fields import PlainText
from sharequeue.protocol.types import MAX_INT32
from sharequeue_http.forms.errors import InvalidRequest

Place = TypeVar("Place", bound=tuple[Any, ...])
Start = TypeVar("Start")
Entry = TypeVar("Entry")
PLACE: Final = msgspec.json.Decoder(tuple[PlainText, Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT32)]])
"""A topic and a partition, where a page ended."""
_SALT_BYTES: Final = 12
_PADDED_BYTES: Final = 64


class PageTokens:
    """`secret`: all gateways share it, so that each takes the tokens of the others."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def token(self, place: tuple[Any, ...]) -> str:
        salt, text = os.urandom(_SALT_BYTES), msgspec.json.encode(place)
        text += b" " * (-len(text) % _PADDED_BYTES)  # its length says nothing about a name
        return base64.urlsafe_b64encode(salt + self._mixed(salt, text)).decode()

    def place(
        self, token: str | None, decoder: "msgspec.json.Decoder[Place]", call: str, first: Start
    ) -> Place | Start:
        """The place in a token; `first` without one. Raises: InvalidRequest: the token is not one of `call`."""
        if token is None:
            return first
        try:
            raw = base64.urlsafe_b64decode(token.encode())
            return decoder.decode(self._mixed(raw[:_SALT_BYTES], raw[_SALT_BYTES:]))
        except (binascii.Error, msgspec.MsgspecError, ValueError):
            raise InvalidRequest(f"page_token is not one that {call} gave") from None

    def page(
        self, found: Sequence[Entry], size: int, place_of: Callable[[Entry], tuple[Any, ...]]
    ) -> tuple[Sequence[Entry], str | None]:
        """The first `size` entries, and the token of the next page if there are more."""
        return found[:size], self.token(place_of(found[size - 1])) if len(found) > size else None

    def _mixed(self, salt: bytes, text: bytes) -> bytes:
        """A text with the bytes that the secret and the salt make: twice is the text again. A changed token is one of
        another place, and allows nothing."""
        return bytes(map(xor, text, hashlib.shake_256(self._secret + salt).digest(len(text))))
