"""The payload of a record, as the type that a function asks for. No IO."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

from sharequeue.client import Record, ValueUndecodable
from sharequeue.client.consuming.values import DoesNotFit, decoder_of
from sharequeue.worker.context import Context

Decode = Callable[[Record], Any]
ANY: Final = (Any, object, inspect.Parameter.empty)


def signature_of(function: Callable[..., Any]) -> tuple[Decode, bool]:
    """Return how to make the first argument of a function, and whether it takes a Context as its second.

    Raises: TypeError: it takes no record, or more than a record and a Context.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    name = getattr(function, "__qualname__", repr(function))
    if not 1 <= len(parameters) <= 2:
        raise TypeError(f"{name} must take the payload, and may take a Context after it")
    try:
        hints = typing.get_type_hints(function)
    except NameError as fault:
        raise TypeError(f"{name}: an annotation cannot be resolved: {fault}") from None
    if len(parameters) == 2 and hints.get(parameters[1].name, Context) is not Context:
        raise TypeError(f"the second parameter of {name} is a Context, or has no annotation")
    return _decoder(hints.get(parameters[0].name, Any)), len(parameters) == 2


def _decoder(wanted: Any) -> Decode:
    if wanted is Record:
        return lambda record: record
    if any(wanted is each for each in ANY):
        return _anything
    decode = decoder_of(wanted)
    return lambda record: record.decoded_by(decode)


def _anything(record: Record) -> Any:
    try:
        return record.value
    except ValueUndecodable as fault:
        raise DoesNotFit(str(fault)) from None
