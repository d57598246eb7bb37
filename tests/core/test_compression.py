"""What a row keeps of a batch: an LZ4 block, or the batch as it is; and blocks that are not one of the batch."""

import json
import random

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.record_log.compression import (
    MOST_OF_SIZE,
    PIECE_BYTES,
    PIECES,
    SAMPLED_FROM_BYTES,
    kept_form,
    unpacked,
)
from sharequeue_gateway.record_log.record_batch import CorruptBatch, RecordBatch

from tests.core.sparse_batches import sparse

WORDS = b"all work and no play " * 1000
BLOCK = lz4.block.compress(WORDS, store_size=False)
RANDOM = random.Random(1).randbytes(len(WORDS))


def with_random_part(part: float) -> bytes:
    """Bytes of which LZ4 makes a block of about this part of their size."""
    size = int(part * len(WORDS))
    return RANDOM[:size] + WORDS[size:]


def test_a_batch_becomes_a_block_with_its_size_beside_it() -> None:
    records, uncompressed_bytes = kept_form(WORDS)
    assert (records, uncompressed_bytes) == (BLOCK, len(WORDS))
    assert unpacked(records, len(WORDS)) == WORDS


def test_a_batch_of_four_kibibytes_is_compressed_and_a_smaller_one_stays() -> None:
    assert kept_form(WORDS[:4095]) == (WORDS[:4095], None)
    assert kept_form(WORDS[:4096])[1] == 4096


@pytest.mark.parametrize(("part", "compressed"), [(1.0, False), (0.95, False), (0.85, True), (0.0, True)])
def test_a_block_that_saves_less_than_a_tenth_is_not_kept(part: float, compressed: bool) -> None:
    stored = with_random_part(part)
    records, uncompressed_bytes = kept_form(stored)
    assert (len(records) <= MOST_OF_SIZE * len(stored)) == compressed
    assert (records, uncompressed_bytes) == (records if compressed else stored, len(stored) if compressed else None)


def test_of_a_large_random_batch_only_a_sample_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    compress, sizes = lz4.block.compress, []
    monkeypatch.setattr(lz4.block, "compress", lambda data, **how: sizes.append(len(data)) or compress(data, **how))
    stored = random.Random(2).randbytes(SAMPLED_FROM_BYTES)
    assert kept_form(stored) == (stored, None)
    assert sizes == [PIECES * PIECE_BYTES]


@pytest.mark.parametrize("random_quarter", range(4))
def test_a_sample_has_pieces_of_all_of_a_large_batch(random_quarter: int) -> None:
    quarters = [bytes(SAMPLED_FROM_BYTES // 4)] * 4
    quarters[random_quarter] = random.Random(3).randbytes(SAMPLED_FROM_BYTES // 4)
    assert kept_form(b"".join(quarters))[1] == SAMPLED_FROM_BYTES


CORRUPT = {
    "nothing": (b"", 1),
    "a block that was cut": (BLOCK[: len(BLOCK) // 2], len(WORDS)),
    "bytes behind the block": (BLOCK + b"\0\0", len(WORDS)),
    "random bytes": (RANDOM[:1000], len(WORDS)),
    "a smaller size": (BLOCK, len(WORDS) - 1),
    "a larger size": (BLOCK, len(WORDS) + 1),
    "no size": (BLOCK, 0),
    "a size below zero": (BLOCK, -1),
    "a size that no block of these bytes has": (BLOCK, 2**31 - 1),
}


@pytest.mark.parametrize(("records", "uncompressed_bytes"), CORRUPT.values(), ids=CORRUPT)
def test_a_block_of_another_batch_is_a_corrupt_batch(records: bytes, uncompressed_bytes: int) -> None:
    with pytest.raises(ValueError, match=r"block"):
        unpacked(records, uncompressed_bytes)
    with pytest.raises(CorruptBatch, match=r"^batch 5: .*block"):
        RecordBatch.decode(5, 7, 7, records, None, uncompressed_bytes)


def test_the_best_block_of_lz4_is_read() -> None:
    """One byte of it stands for almost 255."""
    zeros = bytes(16 << 20)
    records, _ = kept_form(zeros)
    assert len(zeros) / len(records) > 254
    assert unpacked(records, len(zeros)) == zeros


values = st.binary(max_size=400).map(bytes.hex) | st.integers(0, 9).map(lambda digit: str(digit) * 3000)


@given(st.lists(values, min_size=1, max_size=8), st.data(), st.booleans())
def test_a_batch_comes_back_from_its_row(sent: list[str], data: st.DataObject, for_group: bool) -> None:
    """Dense or with gaps, compressed or not."""
    tails = [b',"value":' + json.dumps(value).encode() + b"}" for value in sent]
    batch = RecordBatch.encode(40, tails, 7, "g" if for_group else None, "t")
    if data.draw(st.booleans()):
        batch = sparse(batch, sorted(data.draw(st.sets(st.integers(40, batch.last_offset)))))
    records, uncompressed_bytes = kept_form(batch.stored)
    read = RecordBatch.decode(40, batch.last_offset, 7, records, "t", uncompressed_bytes)
    assert (uncompressed_bytes is not None) == (len(records) < len(batch.stored))
    assert read.stored == batch.stored
    assert (read.size, read.record_count, read.for_group) == (batch.size, batch.record_count, batch.for_group)
    assert read.slice(40, batch.last_offset) == batch.slice(40, batch.last_offset)
