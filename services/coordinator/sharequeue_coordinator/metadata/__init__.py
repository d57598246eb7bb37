"""What belongs to no group: topics, gateways, and the feed of their changes."""
