"""The payload of a record, as the type that a function asks for. No IO."""

import inspect
import typing
from collections.abc import Callable
from typing import Any, Final

from sharequeue.client import Record, ValueUndecodable
from sharequeue.client.consuming.values import DoesNotFit, decoder_of
from sharequeue.worker.context import Context

Decode = Callable[[Record], Any]
HEADER: Final = "task"
"""The header that names the task of a record, where a topic has several."""
ANY: Final = (Any, object, inspect.Parameter.empty)


def signature_of(function: Callable[..., Any]) -> tuple[Decode, int]:
    """Return how to make the first argument of a function, and how many it takes of the payload and a Context.

    Raises: TypeError: it takes more than a payload and a Context.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    name = getattr(function, "__qualname__", repr(function))
    if len(parameters) > 2:
        raise TypeError(f"{name} may take the payload and a Context, and no more")
    try:
        hints = typing.get_type_hints(function)
    except NameError as fault:
        raise TypeError(f"{name}: an annotation cannot be resolved: {fault}") from None
    if len(parameters) == 2 and hints.get(parameters[1].name, Context) is not Context:
        raise TypeError(f"the second parameter of {name} is a Context, or has no annotation")
    return _decoder(hints.get(parameters[0].name, Any) if parameters else Record), len(parameters)


def plain(payload: Any) -> Any:
    """A payload as the producer takes it: a model of pydantic becomes plain values."""
    return payload.model_dump(mode="json") if hasattr(payload, "model_dump") else payload


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
