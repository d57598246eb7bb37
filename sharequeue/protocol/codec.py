"""JSON of the protocol's messages: one encoder, and one decoder for each type."""

import functools
from typing import Any, Final

import msgspec

encode: Final = msgspec.json.Encoder().encode


@functools.cache
def decoder_of(message: Any) -> msgspec.json.Decoder[Any]:
    """The one decoder of a message's type."""
    return msgspec.json.Decoder(message)
