"""Decodes a request: its query as texts, or its JSON body. Every fault becomes an error that says where and why."""

import codecs
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from sharequeue.http.texts import convert_texts
from sharequeue.protocol import mistakes
from sharequeue.protocol.apis import Api
from sharequeue.protocol.bounds import ALWAYS_FITS, TooMany
from sharequeue.protocol.codec import decoder_of
from sharequeue.protocol.errors import InvalidRequest

_UTF8_SLICE: Final = 1 << 16


class RequestDecoder:
    """Decodes the requests of one call."""

    def __init__(self, api: Api) -> None:
        self._api = api
        has_body = api.request is not None and not api.query_parameters
        self._decoder = decoder_of(api.request) if has_body else None
        self._check_body = None if api.internal else api.check_body
        self.takes_json = has_body

    def decode(self, query: bytes, raw: bytes) -> Any:
        """The request as the call's type; None if it has none. Raises: InvalidRequest."""
        if self._api.query_parameters:
            return _decode_query(self._api.request, query)
        if self._decoder is None:
            return None
        try:
            if not raw.isascii():  # values are kept byte for byte and must be UTF-8 too
                if len(raw) > _UTF8_SLICE:
                    _check_utf8(raw)
                else:
                    raw.decode()
            if self._check_body is not None and len(raw) > ALWAYS_FITS:
                self._check_body(raw)
            return self._decoder.decode(raw)
        except TooMany as fault:
            raise mistakes.too_many(fault.pointer, fault.what, fault.limit) from None
        except msgspec.ValidationError as fault:
            raise mistakes.unfit_body(fault, self._api.request) from None
        except msgspec.DecodeError as fault:
            raise mistakes.unreadable(fault, raw, self._api.request) from None
        except UnicodeDecodeError as fault:
            raise _not_utf8(fault.start) from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None


def _decode_query(request_type: Any, query_string: bytes) -> Any:
    values: dict[str, str] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name in values:
            raise mistakes.wrong(f"/{mistakes.escaped(name)}", "is given twice; send the query parameter once")
        values[name] = value
    try:
        request = convert_texts(values, request_type)
    except msgspec.ValidationError as fault:
        raise mistakes.unfit_query(fault, request_type) from None
    for name, value in values.items():
        if getattr(request, name) is None:  # msgspec takes the word `null` for None
            raise mistakes.wrong(f"/{name}", f"must not be {value}; leave the query parameter out")
    return request


def _check_utf8(raw: bytes) -> None:
    """Check a large body in slices: as text all of it could take four times its size. Raises: InvalidRequest."""
    start = 0
    while start < len(raw):
        part = raw[start : start + _UTF8_SLICE]
        try:
            _, used = codecs.utf_8_decode(part, "strict", start + len(part) == len(raw))
        except UnicodeDecodeError as fault:
            raise _not_utf8(start + fault.start) from None
        start += used


def _not_utf8(position: int) -> InvalidRequest:
    return InvalidRequest(f"the body is not UTF-8 at byte {position}", status=400)
