"""Protobuf values: the type of a column for a message, and reading and writing its values.

The types are those of Spark's `from_protobuf`: an enum is a string with its name, `google.protobuf.Timestamp` is a
timestamp, a nested message is a struct. Differences: a `uint32` is a bigint and a `uint64` a decimal, so that every
number fits; a field without presence that is not set has the default of its type, as in every language of Protobuf. A
field with presence that is not set is null. A message that contains itself has no type in Spark.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError
from pyspark.sql import types as spark

from sharequeue_pipeline.registry.schema_folder import SchemaFolder
from sharequeue_pipeline.registry.wire_format import (
    Malformed,
    Misfit,
    encoded_indexes,
    header,
    indexes_of,
    schema_id_of,
)

_TYPES: Final[Mapping[int, spark.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: spark.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: spark.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: spark.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: spark.DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: spark.FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: spark.BooleanType(),
    FieldDescriptor.CPPTYPE_STRING: spark.StringType(),
}
Convert = Callable[[Any], Any]


class ProtobufValues:
    """Values of one column, of one message. `data_type`: of the column.

    Raises: PipelineError: the schema cannot be used, or has no such message.
    """

    def __init__(self, schemas: SchemaFolder, schema_id: int, message: str | None) -> None:
        self._schemas = schemas
        self._id = schema_id
        self._messages: dict[int, dict[tuple[int, ...], str]] = {}
        files = self._read(schema_id)
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files:
                pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as fault:
            raise schemas.fault(schema_id, f"{fault}: protoc must write it with --include_imports") from None
        of_name = {name: indexes for indexes, name in self._messages[schema_id].items()}
        self._name = message or next(iter(of_name), "")
        if self._name not in of_name:
            raise schemas.fault(schema_id, f"it has no message {self._name!r}; it has {', '.join(sorted(of_name))}")
        descriptor = pool.FindMessageTypeByName(self._name)
        self._class: Any = message_factory.GetMessageClass(descriptor)
        try:
            columns, self._to_row = _message(descriptor, ())
        except ValueError as fault:
            raise schemas.fault(schema_id, fault) from None
        self.data_type: spark.DataType = columns
        self._decimals = [each.name for each in columns if "decimal" in each.dataType.simpleString()]
        self._header = header(schema_id) + encoded_indexes(of_name[self._name])

    def decode(self, value: bytes) -> Any:
        """A value as Arrow takes it. Raises: Malformed; PipelineError: its schema cannot be used."""
        schema_id = schema_id_of(value)
        indexes, begin = indexes_of(value)
        if schema_id not in self._messages:
            if not self._schemas.knows(schema_id):
                raise Malformed(f"there is no schema {schema_id} in the registry")
            self._read(schema_id)
        name = self._messages[schema_id].get(indexes)
        if name is None:
            raise Malformed(f"schema {schema_id} has no message with the indexes {list(indexes)}")
        if name != self._name:
            raise Malformed(f"it is a {name}, not a {self._name}")
        message = self._class()
        try:
            message.ParseFromString(value[begin:])
            if not message.IsInitialized():
                raise Malformed(f"it lacks required fields of {name}")
            return self._to_row(message)
        except (DecodeError, UnicodeDecodeError):
            raise Malformed(f"it does not fit {name} of schema {schema_id}") from None

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Fields that are null stay unset. Raises: Misfit."""
        try:
            whole = {name: _whole(value[name]) for name in self._decimals if name in value}
            message = self._class(**{**value, **whole})
            return self._header + bytes(message.SerializeToString(deterministic=True))
        except (ValueError, TypeError, KeyError, EncodeError) as fault:
            raise Misfit(f"a value does not fit {self._name} of schema {self._id}: {fault}") from None

    def _read(self, schema_id: int) -> Any:
        """The files of a schema, imports first. The messages of the last one are noted by their indexes."""
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(self._schemas.schema(schema_id)).file
        except DecodeError:
            raise self._schemas.fault(schema_id, "it is not a descriptor set of protoc") from None
        if not files:
            raise self._schemas.fault(schema_id, "it is an empty descriptor set")
        self._messages[schema_id] = dict(_messages(files[-1].message_type, files[-1].package, ()))
        return files


def _messages(listed: Any, scope: str, outer: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Message indexes and full names, in the order of the .proto file."""
    for index, message in enumerate(listed):
        name = f"{scope}.{message.name}" if scope else message.name
        yield (*outer, index), name
        yield from _messages(message.nested_type, name, (*outer, index))


def _message(descriptor: Any, outer: tuple[str, ...]) -> tuple[spark.StructType, Convert]:
    """The type of a message, and a function that makes of it what Arrow takes.

    `outer`: the messages that it is in. Raises: ValueError: it has no type in Spark.
    """
    name = descriptor.full_name
    if name in outer:
        raise ValueError(f"the message {name} contains itself, which has no type in Spark")
    if not descriptor.fields:
        raise ValueError(f"the message {name} has no fields")
    types, plan = [], []
    for field in descriptor.fields:
        data_type, convert = _field(field, (*outer, name))
        types.append(spark.StructField(field.name, data_type))
        default = field.default_value if field.has_default_value else None
        if default is not None and convert is not None:
            default = convert(default)
        plan.append((field.name, field.has_presence, default, convert))

    def row(message: Any) -> dict[str, Any]:
        found = {}
        for name, optional, default, convert in plan:
            if optional and not message.HasField(name):
                found[name] = default
            else:
                given = getattr(message, name)
                found[name] = given if convert is None else convert(given)
        return found

    return spark.StructType(types), row


def _field(field: Any, outer: tuple[str, ...]) -> tuple[spark.DataType, Convert | None]:
    """The same for a field. Without a function its value is right as it is."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key, _ = _single(entry["key"], outer)
        of, convert = _single(entry["value"], outer)
        if convert is None:
            return spark.MapType(key, of), lambda given: sorted(given.items())
        return spark.MapType(key, of), lambda given: [(key, convert(given[key])) for key in sorted(given)]
    of, convert = _single(field, outer)
    if not field.is_repeated:
        return of, convert
    return spark.ArrayType(of), list if convert is None else lambda given: [convert(each) for each in given]


def _single(field: Any, outer: tuple[str, ...]) -> tuple[spark.DataType, Convert | None]:
    if field.message_type is not None and field.message_type.full_name == "google.protobuf.Timestamp":
        return spark.TimestampType(), lambda given: given.seconds * 1_000_000 + given.nanos // 1000
    if field.message_type is not None:
        return _message(field.message_type, outer)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return spark.StringType(), lambda number: names.get(number) or str(number)
    return spark.BinaryType() if field.type == field.TYPE_BYTES else _TYPES[field.cpp_type], None


def _whole(given: Any) -> Any:
    """The value with whole numbers in place of decimals, which Spark has for `uint64`."""
    if isinstance(given, dict):
        return {_whole(name): _whole(each) for name, each in given.items()}
    if isinstance(given, list):
        return [_whole(each) for each in given]
    return int(given) if isinstance(given, Decimal) else given
