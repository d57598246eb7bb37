"""The serving end of the calls: the endpoints of a service, and what happens between a request and its handler.

    app ──▶ paths ──▶ endpoint ──▶ pace      an arrow: imports

`endpoint` asks who calls, decodes the request, calls the handler and sends its answer or a problem document. `pace`
has refusals of unknown callers wait. `paths` finds the endpoint of a path. `app` is the FastAPI application around
them: pages for people, and refusals of foreign hosts and origins on paths without an endpoint.

The services and `sharequeue.ownership` add their calls here; `sharequeue_http.wire` brings the requests. The room knows
an `Exchange` of each: no connection, and no byte of HTTP.
"""
