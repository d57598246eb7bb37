"""The partition of a key, as Kafka's default partitioner chooses it."""

from aiokafka.partitioner import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Choose as a Java producer does: murmur2 of the key's bytes."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)
