"""Faults of the bytes before a value with a schema registry."""

from tests.mutants.mutant import pipeline

MUTANTS = [
    *pipeline(
        "registry/wire_format",
        (
            "wire format: a value may end with its header",
            "if len(value) < HEADER_BYTES or",
            "if len(value) <= HEADER_BYTES or",
        ),
        (
            "wire format: a cut header is malformed",
            "if len(value) < HEADER_BYTES or",
            "if len(value) < HEADER_BYTES - 1 or",
        ),
        ("wire format: a value begins with the byte 0", " or value[0] != 0:", ":"),
        (
            "wire format: a schema id is read big endian",
            """value[:HEADER_BYTES], "big")""",
            """value[:HEADER_BYTES], "little")""",
        ),
        (
            "wire format: 0 is the first message",
            "        return 0, value[HEADER_BYTES + 1 :]\n",
            "        return 1, value[HEADER_BYTES + 1 :]\n",
        ),
        ("wire format: a message within another is malformed", "if count != 2 or", "if count < 2 or"),
        ("wire format: a negative place is malformed", "or place % 2 or", "or"),
        ("wire format: a place of two bytes is malformed", "or place > 2 * MAX_PLACE:", "or place > 255:"),
        ("wire format: the last place of one byte is read", "place > 2 * MAX_PLACE", "place >= 2 * MAX_PLACE"),
        ("wire format: numbers are in zigzag form", "return place // 2,", "return place,"),
        ("wire format: the first message is one byte", """ if place else b"\\0"\n""", "\n"),
    ),
]
