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
        ("wire format: a value begins with the byte 0", " or value[0] != 0:", ":"),
        (
            "wire format: a schema id is read big endian",
            """value[:HEADER_BYTES], "big")""",
            """value[:HEADER_BYTES], "little")""",
        ),
        ("wire format: a message within another is malformed", "if count != 2 or", "if count < 2 or"),
        ("wire format: numbers are in zigzag form", "return place // 2,", "return place,"),
        ("wire format: the first message is one byte", """ if place else b"\\0"\n""", "\n"),
    ),
]
