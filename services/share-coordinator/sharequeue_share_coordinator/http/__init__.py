"""The calls of the share coordinator."""
