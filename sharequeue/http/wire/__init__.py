"""HTTP/1.1 as a server speaks it: from the bytes of a connection to an exchange, and back.

    protocol ──▶ request_parser ──▶ connection_exchange ──▶ unsent ──▶ edge      an arrow: imports
        │              └─▶ head
        └──▶ workers ──▶ asgi_adapter

`protocol` keeps the rules of one connection: the order of its requests, its clocks, its end. `request_parser` makes
requests of bytes and checks their heads with `head`. `connection_exchange` is one request with its answer, and `unsent`
the bytes that the client has still to take. `edge` knows all connections of the server: it chooses one to close or to
refuse when files, memory or time run out. `workers` has the tasks in which requests are answered. `asgi_adapter` serves
a request with ASGI if it may not go straight. `sockets` asks the operating system about a connection.

`sharequeue.service` gives `protocol` to uvicorn. Nothing else imports this room, besides tests.
"""
