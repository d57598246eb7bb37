"""HTTP/1.1 as a server speaks it: from the bytes of a connection to an exchange, and back.

    protocol ──▶ connection, handshake ──▶ edge      an arrow: imports
       └──▶ asgi_adapter, head

`protocol` makes requests of bytes, checks their heads, keeps their order and gives them to tasks. `head` has the forms
of a head. `connection` is everything else of one connection: its clocks, refusals and end. `edge` knows all connections
of the server: it chooses one to close or to refuse when files, memory or time run out. `asgi_adapter` has FastAPI
answer a request that is for no endpoint. `handshake` is a connection of TLS until its client has shaken hands.

`sharequeue.service` gives `protocol` to uvicorn, and answers calls within a process with its workers. Nothing else
imports this room, besides tests.
"""
