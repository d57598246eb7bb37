"""The serving end of the calls: the routes of a service, and what happens between a request and its handler.

    app ──▶ asgi_exchange, checked_callers ──▶ paths ──▶ endpoint ──▶ decoding      an arrow: imports

`endpoint` asks who calls, decodes the request, calls the handler and sends its answer or a problem document. `paths`
finds the endpoint of a path. `app` is the FastAPI application with a route for each endpoint, and decides which
requests are served past ASGI. `asgi_exchange` is the other way, behind middleware. `checked_callers` refuses foreign
hosts and origins on paths without an endpoint.

The services and `sharequeue.ownership` add their calls here; `sharequeue.http.wire` brings the requests. The room knows
`Exchange` alone of them: no connection, and no byte of HTTP.
"""
