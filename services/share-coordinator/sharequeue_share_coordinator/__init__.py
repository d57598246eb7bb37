"""The share coordinator: keeps the state of share-partitions, as snapshots and updates in PostgreSQL."""
