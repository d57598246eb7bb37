"""The rules of a share group. Pure."""
