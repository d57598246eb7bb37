"""The protocol of share groups: types, errors, messages and calls. Pure data: no IO, no framework."""
