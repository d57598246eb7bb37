"""The gateway: the HTTP edge, and the leader of share-partitions. Its README lists the rooms, from `http` down."""
