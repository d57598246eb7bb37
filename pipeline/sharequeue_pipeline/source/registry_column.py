"""Columns of values with a schema id, and for a table what a column does not take of them.

The columns of a table may be older than the schema. A value for it is read by the schema of the options, which knows
defaults and promotions, and by the schema that it was written with, which knows all of its fields. The column takes the
fields that it has, if they fit its types. The rest is kept as JSON: of the fields that the column does not take, or of
the bytes if the value cannot be read at all.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from sharequeue_pipeline.registry.wire_format import Malformed, schema_id_of

if TYPE_CHECKING:
    from sharequeue_pipeline.registry.avro_values import AvroValues
    from sharequeue_pipeline.registry.protobuf_values import ProtobufValues

UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)
"""What Arrow raises for a value that is not of a type."""


class RegistryColumn:
    """Makes columns of values with a schema id; null for a value that cannot be read."""

    def __init__(
        self,
        values: "AvroValues | ProtobufValues",
        arrow_type: Any,
        malformed: dict[int, str],
        *,
        same: bool,
        rescues: bool,
    ) -> None:
        """Make columns of a type.

        Args:
            malformed: gets the values that cannot be read, or without `rescues` do not fit, by their place.
            same: the type is that of the options' schema.
            rescues: what the column does not take is kept in `rests`.
        """
        self._values, self._type, self._malformed = values, arrow_type, malformed
        self._same, self._rescues = same, rescues
        self.rests: dict[int, str] = {}
        """JSON of what the last column did not take, by the place of the value."""

    def __call__(self, values: Any, _: Any) -> Any:
        self.rests.clear()
        taken = [None if value is None else self._taken(place, value) for place, value in enumerate(values.to_pylist())]
        try:
            return pa.array(taken, self._type)
        except UNFIT:
            return pa.array([self._fitting(place, value, value) for place, value in enumerate(taken)], self._type)

    def _taken(self, place: int, value: bytes) -> Any:
        try:
            found = self._values.decode(value)
            if not self._rescues or (self._same and schema_id_of(value) == self._values.schema_id):
                return found
            whole = self._values.decode(value, whole=True)
        except Malformed as fault:
            return self._unread(place, value, str(fault))
        return self._fitting(place, found, whole)

    def _unread(self, place: int, value: bytes, fault: str) -> Any:
        """Take what fits of a value that the schema of the options cannot read."""
        if self._rescues:
            with suppress(Malformed):
                found = self._values.decode(value, whole=True)
                return self._fitting(place, found, found)
            self.rests[place] = msgspec.json.encode({"_malformed": fault, "_base64": value}).decode()
        self._malformed[place] = fault
        return None

    def _fitting(self, place: int, found: Any, whole: Any) -> Any:
        """Note the rest of a value. `whole`: the value with all its fields. Returns: what the column takes."""
        rest = divided(whole, self._type)[1]
        if rest is not None and not self._rescues:
            self._malformed[place] = "a number or a time in it is beyond the bounds of its type"
            return None
        if rest is not None:
            self.rests[place] = msgspec.json.encode(rest).decode()
        return divided(found, self._type)[0]


def divided(value: Any, of: Any) -> tuple[Any, Any]:
    """Divide a value into the part that a column of an Arrow type takes, and the rest; None: nothing.

    Of a struct it takes the fields that fit. Of a list with items that do not fit, the whole list is the rest.
    """
    if isinstance(value, dict) and pa.types.is_struct(of):
        parts = {
            name: divided(each, of.field(name).type) if of.get_field_index(name) >= 0 else (None, each)
            for name, each in value.items()
        }
        rest = {name: left for name, (_, left) in parts.items() if left is not None}
        return {name: kept for name, (kept, _) in parts.items()}, rest or None
    if isinstance(value, list) and pa.types.is_list(of):
        items = [divided(each, of.value_type) for each in value]
        return [kept for kept, _ in items], value if any(rest is not None for _, rest in items) else None
    if pa.types.is_temporal(of) and isinstance(value, int):
        return None, value  # Arrow would take any number for a time
    try:
        pa.array([value], of)
    except UNFIT:
        return None, value
    return value, None
