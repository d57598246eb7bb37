"""Faults of the form that a row keeps of a batch."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "record_log/compression",
        ("a small batch stays as it is", "if len(stored) < COMPRESS_FROM_BYTES:", "if False:"),
        (
            "a block that saves less than a tenth is not kept",
            "if len(block) <= MOST_OF_SIZE * len(stored) else (stored, None)",
            "if len(block) <= len(stored) else (stored, None)",
        ),
        (
            "of a large batch that does not become smaller, only a sample is compressed",
            "if len(stored) >= SAMPLED_FROM_BYTES:",
            "if False:",
        ),
        (
            "a sample has pieces of all of a batch",
            "len(stored) // PIECES)",
            "len(stored))",
        ),
        ("the best block is read", "MOST_RATIO * len(block)", "250 * len(block)"),
        (
            "a block of fewer bytes is another one",
            "    if len(stored) != stored_bytes:\n",
            "    if len(stored) > stored_bytes:\n",
        ),
    ),
    *gateway(
        "record_log/record_batch",
        (
            "a corrupt block is a corrupt batch",
            "        except ValueError as fault:\n",
            "        except KeyError as fault:\n",
        ),
        (
            "a block is decompressed",
            "if uncompressed_bytes is None else unpacked",
            "if True else unpacked",
        ),
    ),
]
