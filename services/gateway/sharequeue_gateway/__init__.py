"""The gateway: the HTTP edge, and the leader of share-partitions."""
