"""The calls of the group coordinator."""
