"""Kafka's partition of a key: vectors of Kafka's own tests, and the algorithm written out once more."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.producing.partitioner import LEAST_TOGETHER, key_hash, key_hashes

# org.apache.kafka.common.utils.UtilsTest.testMurmur2, as signed 32-bit numbers
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_hashes_are_those_of_kafkas_murmur2(key: bytes, signed: int) -> None:
    assert key_hash(key) == signed & 0x7FFFFFFF


def java_murmur2(data: bytes) -> int:
    """org.apache.kafka.common.utils.Utils.murmur2, with Java's signed overflow made explicit."""
    mask, m, r = 0xFFFFFFFF, 0x5BD1E995, 24
    h = (0x9747B28C ^ len(data)) & mask
    for i in range(len(data) // 4):
        k = data[4 * i] | data[4 * i + 1] << 8 | data[4 * i + 2] << 16 | data[4 * i + 3] << 24
        k = k * m & mask
        k = (k ^ k >> r) * m & mask
        h = h * m & mask ^ k
    tail = len(data) & ~3
    if len(data) % 4 >= 3:
        h ^= data[tail + 2] << 16
    if len(data) % 4 >= 2:
        h ^= data[tail + 1] << 8
    if len(data) % 4 >= 1:
        h = (h ^ data[tail]) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@given(st.binary(max_size=40))
def test_every_key_hashes_as_kafkas_algorithm_does(key: bytes) -> None:
    assert key_hash(key) == java_murmur2(key) & 0x7FFFFFFF


@given(st.lists(st.integers(0, 9) | st.sampled_from([255, 256, 257]), max_size=4), st.integers(0, 80), st.randoms())
def test_keys_hash_together_as_each_alone(lengths: list[int], repeats: int, random: random.Random) -> None:
    keys = [random.randbytes(length) for length in lengths * repeats]
    random.shuffle(keys)
    assert key_hashes(keys) == [java_murmur2(key) & 0x7FFFFFFF for key in keys]


@pytest.mark.parametrize("byte", [0, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("length", range(10))
def test_extreme_keys_of_one_length_do_not_reach_into_one_another(byte: int, length: int) -> None:
    keys = [bytes([byte]) * length, bytes([255 - byte]) * length] * LEAST_TOGETHER
    assert key_hashes(keys) == [java_murmur2(key) & 0x7FFFFFFF for key in keys]
