"""Page tokens: the encoded place where a page ended. A caller sends the token back to get the next page."""

import base64
import binascii
from typing import Any, TypeVar

import msgspec

from sharequeue_http.forms.errors import InvalidRequest

Place = TypeVar("Place", bound=tuple[Any, ...])


def page_token(place: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def place_of(token: str, decoder: "msgspec.json.Decoder[Place]", call: str) -> Place:
    """The place in a token. Raises: InvalidRequest: the token is not one of `call`."""
    try:
        return decoder.decode(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise InvalidRequest(f"page_token is not one that {call} gave") from None
