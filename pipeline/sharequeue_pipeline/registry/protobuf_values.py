"""Protobuf values: the type of a column for a message, and reading and writing its values.

The types are those of Spark's `from_protobuf`: an enum is a string with its name, `google.protobuf.Timestamp` is a
timestamp, a nested message is a struct. Differences: a `uint32` is a bigint and a `uint64` a decimal, so that every
number fits; a field without presence that is not set has the default of its type, as in every language of Protobuf. A
field with presence that is not set is null. A message that contains itself has no type in Spark.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.registry.fitting import misfit
from sharequeue_pipeline.registry.schema_folder import SchemaFolder
from sharequeue_pipeline.registry.wire_format import (
    Malformed,
    Misfit,
    encoded_indexes,
    header,
    indexes_of,
    schema_id_of,
)

TIMESTAMP: Final = "google.protobuf.Timestamp"
_INT, _LONG = spark.IntegerType(), spark.LongType()
_UINT64, _STRING = spark.DecimalType(20, 0), spark.StringType()
Convert = Callable[[Any], Any]


class ProtobufValues:
    """Values of one column, of one message. `data_type`: of the column.

    Raises: PipelineError: the schema cannot be used, or has no such message.
    """

    def __init__(self, schemas: SchemaFolder, schema_id: int, message: str | None) -> None:
        self._protobuf = _library()
        self._schemas = schemas
        self._id = schema_id
        self._messages: dict[int, dict[tuple[int, ...], str]] = {}
        descriptor_set = self._read(schema_id)
        pool = self._protobuf.descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_set.file:
                pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError) as fault:
            raise schemas.fault(schema_id, f"{fault}: protoc must write it with --include_imports") from None
        of_name = {name: indexes for indexes, name in self._messages[schema_id].items()}
        if not of_name:
            raise schemas.fault(schema_id, "its .proto file has no message")
        self._name = message or self._messages[schema_id][0,]
        if self._name not in of_name:
            raise schemas.fault(schema_id, f"it has no message {self._name!r}; it has {', '.join(sorted(of_name))}")
        descriptor = pool.FindMessageTypeByName(self._name)
        self._class: Any = self._protobuf.message_factory.GetMessageClass(descriptor)
        try:
            self.data_type: spark.DataType = _struct_type(descriptor, ())
        except _Unusable as fault:
            raise schemas.fault(schema_id, fault) from None
        self._to_row = _reading(descriptor)
        self._fill = _writing(descriptor)
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
        except (self._protobuf.message.DecodeError, UnicodeDecodeError):
            raise Malformed(f"it does not fit {name} of schema {schema_id}") from None

    def check(self, given: spark.DataType) -> None:
        """Raises: Misfit: the message cannot hold values of this type."""
        found = misfit(given, self.data_type)
        if found is not None:
            raise Misfit(found)

    def encode(self, value: Any) -> bytes:
        """A value from Arrow's Python objects. Raises: Misfit."""
        message = self._class()
        try:
            self._fill(message, value)
            return self._header + bytes(message.SerializeToString(deterministic=True))
        except (ValueError, TypeError, KeyError, self._protobuf.message.EncodeError) as fault:
            raise Misfit(f"a value does not fit {self._name} of schema {self._id}: {fault}") from None

    def _read(self, schema_id: int) -> Any:
        """The descriptor set of a schema. Its messages are noted by their indexes."""
        found = self._protobuf.descriptor_pb2.FileDescriptorSet()
        try:
            found.ParseFromString(self._schemas.schema(schema_id))
        except self._protobuf.message.DecodeError:
            raise self._schemas.fault(schema_id, "it is not a descriptor set of protoc") from None
        if not found.file:
            raise self._schemas.fault(schema_id, "it is an empty descriptor set")
        main = found.file[-1]  # protoc writes imports first
        self._messages[schema_id] = dict(_messages(main.message_type, main.package, ()))
        return found


def _library() -> Any:
    try:
        import google.protobuf  # noqa: PLC0415 - not needed for other formats
        import google.protobuf.descriptor_pb2  # noqa: PLC0415
        import google.protobuf.descriptor_pool  # noqa: PLC0415
        import google.protobuf.message  # noqa: PLC0415
        import google.protobuf.message_factory  # noqa: PLC0415
    except ImportError:
        raise PipelineError(
            "valueFormat=protobuf needs the package protobuf: pip install 'sharequeue[spark]'"
        ) from None
    return google.protobuf


def _messages(listed: Any, scope: str, outer: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Message indexes and full names, in the order of the .proto file."""
    for index, message in enumerate(listed):
        name = f"{scope}.{message.name}" if scope else message.name
        yield (*outer, index), name
        yield from _messages(message.nested_type, name, (*outer, index))


class _Unusable(Exception):
    """There is no column for a message."""


def _struct_type(descriptor: Any, outer: tuple[str, ...]) -> spark.StructType:
    if descriptor.full_name in outer:
        raise _Unusable(f"the message {descriptor.full_name} contains itself, which has no type in Spark")
    if not descriptor.fields:
        raise _Unusable(f"the message {descriptor.full_name} has no fields")
    inner = (*outer, descriptor.full_name)
    return spark.StructType([spark.StructField(field.name, _field_type(field, inner)) for field in descriptor.fields])


def _field_type(field: Any, outer: tuple[str, ...]) -> spark.DataType:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return spark.MapType(_single_type(key, outer), _single_type(value, outer))
    single = _single_type(field, outer)
    return spark.ArrayType(single) if field.is_repeated else single


def _single_type(field: Any, outer: tuple[str, ...]) -> spark.DataType:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return spark.TimestampType()
        return _struct_type(field.message_type, outer)
    return _TYPES[field.type]


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


_TYPES: Final[Mapping[int, spark.DataType]] = {  # by the numbers of FieldDescriptorProto.Type
    1: spark.DoubleType(),
    2: spark.FloatType(),
    3: _LONG,
    4: _UINT64,
    5: _INT,
    6: _UINT64,  # fixed64
    7: _LONG,  # fixed32
    8: spark.BooleanType(),
    9: _STRING,
    12: spark.BinaryType(),
    13: _LONG,  # uint32
    14: _STRING,  # an enum
    15: _INT,  # sfixed32
    16: _LONG,  # sfixed64
    17: _INT,  # sint32
    18: _LONG,  # sint64
}
_UNSIGNED_64: Final = (4, 6)


def _reading(descriptor: Any) -> Convert:
    """A function from a message to a row."""
    plan = [
        (field.name, field.has_presence and not field.is_repeated, _default(field), _field_reading(field))
        for field in descriptor.fields
    ]

    def row(message: Any) -> dict[str, Any]:
        found = {}
        for name, optional, default, convert in plan:
            if optional and not message.HasField(name):
                found[name] = default
            else:
                given = getattr(message, name)
                found[name] = given if convert is None else convert(given)
        return found

    return row


def _default(field: Any) -> Any:
    """What a field with presence has that is not set: null, unless its .proto file gives a default."""
    if field.is_repeated or field.message_type is not None or not field.has_default_value:
        return None
    convert = _single_reading(field)
    return field.default_value if convert is None else convert(field.default_value)


def _field_reading(field: Any) -> Convert | None:
    if _is_map(field):
        convert = _single_reading(field.message_type.fields_by_name["value"])
        if convert is None:
            return lambda given: sorted(given.items())
        return lambda given: [(key, convert(given[key])) for key in sorted(given)]
    single = _single_reading(field)
    if not field.is_repeated:
        return single
    return list if single is None else lambda given: [single(each) for each in given]


def _single_reading(field: Any) -> Convert | None:
    """None: the value is right as it is."""
    if field.message_type is not None:
        return _microseconds if field.message_type.full_name == TIMESTAMP else _reading(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    return Decimal if field.type in _UNSIGNED_64 else None


def _microseconds(given: Any) -> int:
    return int(given.seconds * 1_000_000 + given.nanos // 1000)


def _writing(descriptor: Any) -> Callable[[Any, Mapping[str, Any]], None]:
    """A function that fills a message from a row. Fields that are null stay unset."""
    plan = {field.name: _field_writing(field) for field in descriptor.fields}

    def fill(message: Any, row: Mapping[str, Any]) -> None:
        for name, given in row.items():
            if given is not None:
                plan[name](message, given)

    return fill


def _field_writing(field: Any) -> Callable[[Any, Any], None]:
    name = field.name
    if _is_map(field):
        return _map_writing(name, field.message_type.fields_by_name["value"])
    if field.message_type is None:
        convert = _single_writing(field)
        if not field.is_repeated:
            return lambda message, given: setattr(message, name, convert(given))
        return lambda message, given: getattr(message, name).extend(convert(each) for each in given)
    fill = _message_writing(field.message_type)
    if field.is_repeated:

        def add(message: Any, given: Any) -> None:
            for each in given:
                fill(getattr(message, name).add(), each)

        return add

    def set_one(message: Any, given: Any) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        fill(inner, given)

    return set_one


def _map_writing(name: str, value: Any) -> Callable[[Any, Any], None]:
    fill = None if value.message_type is None else _message_writing(value.message_type)
    convert = _single_writing(value)

    def put(message: Any, given: Mapping[Any, Any]) -> None:
        target = getattr(message, name)
        for key, each in given.items():
            if fill is None:
                target[key] = convert(each)
            else:
                fill(target[key], each)

    return put


def _message_writing(descriptor: Any) -> Callable[[Any, Any], None]:
    if descriptor.full_name == TIMESTAMP:
        return lambda message, given: message.FromDatetime(given)
    fill = _writing(descriptor)

    def strict(message: Any, given: Any) -> None:
        if given is None:
            raise ValueError(f"an element of the type {descriptor.full_name} is null")
        fill(message, given)

    return strict


def _single_writing(field: Any) -> Convert:
    if field.enum_type is not None:
        return lambda given: field.enum_type.values_by_name[given].number
    return int if field.type in _UNSIGNED_64 else lambda given: given
