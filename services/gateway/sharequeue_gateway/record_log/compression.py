"""Compression of batches: a row of `log.record_batches` has the stored form of a batch, or one LZ4 block of it. Pure.

The column `uncompressed_bytes` tells them apart: it is the size of the stored form, or null if `records` is that form.
LZ4 takes about 0.3 µs for a KiB of JSON. A large batch that does not become smaller is known by a sample of it.
PostgreSQL takes 4 to 9 µs to keep a KiB.
"""

from typing import Final

import lz4.block

from sharequeue.protocol.batch_layout import MOST_RATIO

COMPRESS_FROM_BYTES: Final = 4096
"""Smaller batches stay as they are: PostgreSQL keeps them in the row itself."""
MOST_OF_SIZE: Final = 0.9
"""A block that is larger than this part of the stored form is not worth its time at each read."""
SAMPLED_FROM_BYTES: Final = 256 * 1024
PIECES: Final = 4
"""Of a sample, from all of the batch."""
PIECE_BYTES: Final = 16 * 1024


def kept_form(stored: bytes) -> tuple[bytes, int | None]:
    """`records` and `uncompressed_bytes` of a batch's row."""
    if len(stored) < COMPRESS_FROM_BYTES:
        return stored, None
    if len(stored) >= SAMPLED_FROM_BYTES:
        places = range(0, len(stored), len(stored) // PIECES)
        if kept_form(b"".join([stored[place : place + PIECE_BYTES] for place in places]))[1] is None:
            return stored, None
    block: bytes = lz4.block.compress(stored, store_size=False)
    return (block, len(stored)) if len(block) <= MOST_OF_SIZE * len(stored) else (stored, None)


def unpacked(block: bytes, stored_bytes: int) -> bytes:
    """The stored form of a batch, decompressed. Raises: ValueError: this is not a block of `stored_bytes` bytes."""
    if not 0 <= stored_bytes <= MOST_RATIO * len(block):  # no memory is taken for a wrong size
        raise ValueError(f"{len(block)} bytes are not a block of {stored_bytes} bytes")
    try:
        stored: bytes = lz4.block.decompress(block, uncompressed_size=stored_bytes)
    except lz4.block.LZ4BlockError as fault:
        raise ValueError(f"{len(block)} bytes are not a block of LZ4: {fault}") from None
    if len(stored) != stored_bytes:
        raise ValueError(f"the block becomes {len(stored)} bytes, not {stored_bytes}")
    return stored
