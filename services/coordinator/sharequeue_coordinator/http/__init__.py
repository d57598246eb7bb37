"""The calls of the group coordinator: one file per subject, a class of handlers in each. `prepare.py` serves them all.

Gateways call on their own behalf (`metadata_api.py`) and pass on the calls of clients (`topics_api.py`,
`groups_api.py`, `access_api.py`). All of them carry the cluster token.
"""
