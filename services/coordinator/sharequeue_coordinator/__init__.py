"""The group coordinator: topics, groups and their members, settings, and which share-partitions are initialised."""
