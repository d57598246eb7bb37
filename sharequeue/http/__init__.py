"""HTTP, both ends: a row of `sharequeue.protocol.apis` becomes a route of a service, or a call of it.

    bytes ──▶ protocol ──▶ connection_exchange ──▶ endpoint ──▶ handler of a service ──▶ answer
                 │ request_parser   │ exchange         │ decoding, texts, origins, problems
                 │ head, unsent     │                  │
                 │ edge, limits     │                  │
                 └──▶ asgi_adapter ─┴─▶ app (FastAPI) ─┘ asgi_exchange, checked_callers, paths, openapi

    a service or the client ──▶ caller ──▶ connections ──▶ bytes

`protocol` keeps the rules of one connection, `request_parser` what has come in of its requests, `unsent` what its client
has still to take, and `edge` the rules of all connections together. `connection_exchange` is one request with its answer.
`endpoint` checks a request, decodes it and calls its handler; `app` makes endpoints the routes of a FastAPI application
and decides which of them are served past ASGI. Services import `app`, `endpoint` and `answer`;
clients and the pipeline import `caller` alone. The room knows no service and no store.
"""
