"""Faults of values with a schema registry: the bytes before a value, and the columns that fit a schema."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "registry/wire_format",
        (
            "wire format: a value may end with its header",
            "    if len(value) < HEADER_BYTES:\n",
            "    if len(value) <= HEADER_BYTES:\n",
        ),
        (
            "wire format: a cut header is malformed",
            "    if len(value) < HEADER_BYTES:\n",
            "    if len(value) < HEADER_BYTES - 1:\n",
        ),
        ("wire format: a value begins with the byte 0", "    if magic != 0:\n", "    if False:\n"),
        ("wire format: a schema id is big endian", """struct.Struct(">bI")""", """struct.Struct("<bI")"""),
        ("wire format: a schema id is never negative", """struct.Struct(">bI")""", """struct.Struct(">bi")"""),
        ("wire format: 0 is the first message", "        return (0,), at\n", "        return (), at\n"),
        (
            "wire format: a negative count is malformed",
            "if not 0 < count <= MAX_INDEXES:",
            "if not count <= MAX_INDEXES:",
        ),
        ("wire format: too many indexes are malformed", "if not 0 < count <= MAX_INDEXES:", "if not 0 < count:"),
        (
            "wire format: the most indexes are read",
            "if not 0 < count <= MAX_INDEXES:",
            "if not 0 < count < MAX_INDEXES:",
        ),
        ("wire format: the first message is one byte", "    if tuple(indexes) == (0,):\n", "    if False:\n"),
        ("wire format: a byte from 128 on is not the last", "        if byte < 0x80:\n", "        if byte <= 0x80:\n"),
        ("wire format: a number of 128 has two bytes", "    while left >= 0x80:\n", "    while left > 0x80:\n"),
        ("wire format: numbers are in zigzag form", "(number >> 1) ^ -(number & 1)", "number"),
        ("wire format: a number has ten bytes at most", "value[at : at + _MAX_VARINT_BYTES]", "value[at:]"),
    ),
    *pipeline(
        "registry/fitting",
        (
            "schema fit: a field that the schema lacks is named",
            "            if field.name not in wanted.names:\n",
            "            if False:\n",
        ),
        ("schema fit: the fields of a struct count", "            if found is not None:\n", "            if False:\n"),
        ("schema fit: the path of a field is named", """dataType, f"{path}.{field.name}")""", """dataType, path)"""),
        (
            "schema fit: the elements of an array count",
            """        return misfit(given.elementType, wanted.elementType, f"{path}[]")\n""",
            "        return None\n",
        ),
        (
            "schema fit: the keys of a map count",
            """misfit(given.keyType, wanted.keyType, f"{path} (keys)") or misfit""",
            "misfit",
        ),
        ("schema fit: the values of a map count", "given.valueType, wanted.valueType", "given.keyType, wanted.keyType"),
        ("schema fit: no decimal place is lost", "given.scale <= wanted.scale and", ""),
        (
            "schema fit: no digit before the point is lost",
            "given.precision - given.scale <= wanted.precision - wanted.scale",
            "given.precision <= wanted.precision",
        ),
        ("schema fit: a type fits itself", "_WIDER.index(type(given)) <= ", "_WIDER.index(type(given)) < "),
        ("schema fit: a longer number does not fit", "_WIDER.index(type(given)) <= ", "0 <= "),
        (
            "schema fit: a float fits a double",
            "    if isinstance(given, spark.FloatType) and isinstance(wanted, spark.DoubleType):\n",
            "    if False:\n",
        ),
        ("schema fit: another type does not fit", "return type(given) is type(wanted)", "return True"),
    ),
]
