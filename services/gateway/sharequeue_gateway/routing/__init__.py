"""Requests over several gateways: finds the leaders of a request, and joins their answers into one.

`routing.py` splits a request by leader, `gateway_client.py` calls the other gateways, `fetch.py` and `acknowledge.py`
join the answers (`fetched.py`), and `sessions.py` keeps share sessions. A stream (`stream.py`; all of them:
`streams.py`) fetches again and again, and asks the leaders what its member still holds (`held.py`). `settling.py` makes
records pending on a transaction at all leaders, and `settled_commits.py` commits it. The HTTP calls use this room.
While a gateway is alone in its cluster, it leads everything. A plain fetchRecords or acknowledgeRecords then goes past
this room: its handler asks `Cluster.alone` once. So does one of a few partitions that the gateway leads
(`Routing.leads_these`). For every other fetch and acknowledgement this room asks. `appends.py` sends appends to the
gateway that should append to their partition.

    fetch ──▶ split ──▶ several leaders ──▶ ask each of them in turn ──▶ Fetched
                │                                 │ nothing: wait at all of them
                ╰─▶ one gateway leads everything ──▶ it waits
"""
