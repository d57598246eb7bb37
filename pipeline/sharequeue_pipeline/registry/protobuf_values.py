"""Protobuf values: the type of a column for a message, and reading and writing its values.

The types are those of Spark's `from_protobuf`: an enum is a string with its name, `google.protobuf.Timestamp` is a
timestamp, a nested message is a struct. Differences: a `uint32` is a bigint and a `uint64` a decimal, so that every
number fits; a field without presence that is not set has the default of its type, as in every language of Protobuf. A
field with presence that is not set is null. A message that contains itself has no type in Spark.
"""

import datetime
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Error

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import ValueOptions
from sharequeue_pipeline.registry.wire_format import MAX_PLACE, Malformed, header, message_of, schema_id_of
from sharequeue_pipeline.schemas.lookup import Schemas

_TYPES: Final = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "bigint",
    FieldDescriptor.CPPTYPE_UINT32: "bigint",
    FieldDescriptor.CPPTYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "double",
    FieldDescriptor.CPPTYPE_FLOAT: "float",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
}


class ProtobufValues:
    """Values of one column, of one message. `ddl`: its type. Raises: PipelineError: the schema cannot be used."""

    def __init__(self, options: ValueOptions) -> None:
        self.schema_id = options.value_schema
        self._schemas = Schemas(options, "desc", _messages)
        found = {each.full_name: each for each in self._schemas.schema(self.schema_id, PipelineError)}
        self._name = options.value_message or next(iter(found), "")
        if self._name not in found:
            raise PipelineError(f"schema {self.schema_id} has no message {self._name!r}; it has {', '.join(found)}")
        self._place = list(found).index(self._name)
        self.ddl = _struct(found[self._name], ())
        self._class: Any = message_factory.GetMessageClass(found[self._name])

    def decode(self, value: bytes, *, whole: bool = False) -> Any:
        """A value as Arrow takes it. `whole`: with the fields that are set, of the schema that it was written with.

        Raises: Malformed; PipelineError: its schema cannot be used.
        """
        schema_id = schema_id_of(value)
        place, message = message_of(value)
        written = self._schemas.schema(schema_id, Malformed)
        if place >= len(written) or written[place].full_name != self._name:
            raise Malformed(f"message {place} of schema {schema_id} is not {self._name}")
        try:
            if whole:
                found = message_factory.GetMessageClass(written[place]).FromString(message)
                given = {field.name for field, _ in found.ListFields()}
                return {name: part for name, part in _row(found).items() if name in given}
            return _row(self._class.FromString(message))
        except (Error, ValueError):
            raise Malformed(f"it does not fit {self._name} of schema {schema_id}") from None

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Fields that are null stay unset. Raises: PipelineError."""
        try:
            message = bytes(self._class(**value).SerializeToString(deterministic=True))
        except (ValueError, TypeError, KeyError, Error) as fault:
            raise PipelineError(f"valueFormat=protobuf: a value does not fit {self._name}: {fault}") from None
        return header(self.schema_id, self._place) + message


def _messages(texts: Sequence[bytes]) -> list[Any]:
    """The messages of a descriptor set's last file that values may have, in the order of the .proto file."""
    files = descriptor_pb2.FileDescriptorSet.FromString(texts[-1]).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindFileByName(files[-1].name).message_types_by_name
    return [found[each.name] for each in files[-1].message_type[: MAX_PLACE + 1]]


def _struct(message: Any, outer: tuple[str, ...]) -> str:
    """The type of a message as DDL. `outer`: the messages that it is in. Raises: PipelineError: it has none."""
    if message.full_name in outer:
        raise PipelineError(f"the message {message.full_name} contains itself, which has no type in Spark")
    inner = (*outer, message.full_name)
    return f"struct<{','.join(f'`{field.name}`:{_type(field, inner)}' for field in message.fields)}>"


def _type(field: Any, outer: tuple[str, ...]) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return f"map<{','.join(_type(each, outer) for each in message.fields)}>"
    if message is not None:
        found = "timestamp" if message.full_name == "google.protobuf.Timestamp" else _struct(message, outer)
    else:
        found = "binary" if field.type == field.TYPE_BYTES else _TYPES.get(field.cpp_type, "string")
    return f"array<{found}>" if field.is_repeated else found


def _row(message: Any) -> dict[str, Any]:
    """A message as Arrow takes it."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        given = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            found[field.name] = [(key, _single(of, given[key])) for key in sorted(given)]
        elif field.is_repeated:
            found[field.name] = [_single(field, each) for each in given]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _single(field, given)
    return found


def _single(field: Any, given: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(given)
        return str(given) if known is None else known.name
    if field.message_type is None:
        return given
    if field.message_type.full_name == "google.protobuf.Timestamp":
        return given.ToDatetime(datetime.UTC)
    return _row(given)
