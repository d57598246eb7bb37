"""The group coordinator: topics, group configs, and which share-partitions are initialised."""
