"""Requests over several gateways: which one leads what, and how their answers become one.

`routing.py` splits a request by leader, `gateway_client.py` calls the others, `fetch.py` and `acknowledge.py` put the
answers together, `sessions.py` keeps share sessions. The HTTP calls use this room; a gateway that is alone in its cluster
leads everything and does not.

    fetch ──▶ split ──▶ this gateway leads some ──▶ ask each leader in turn ──▶ Fetched
                │                                        │ nothing: wait at all of them
                ╰─▶ one other gateway leads everything ──▶ it waits ──▶ RelayedAnswer, sent on as it is
"""
