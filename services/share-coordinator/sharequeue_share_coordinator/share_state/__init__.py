"""The rules of the state of share-partitions. Pure."""
