"""The calls of other services: they need the cluster token, and no client makes them.

`leader_api.py`: other gateways fetch, acknowledge and wait at the leader of a share-partition, and ask it to yield what
they lead now. `group_use_api.py`: the group coordinator asks whether a group is in use, has it unloaded before a reset
and its floors in the log moved, and releases the records of a member that left.
"""
