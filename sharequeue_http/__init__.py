"""HTTP, both ends: a row of `sharequeue.protocol.apis` becomes a route of a service, or a call of it.

    bytes ──▶ wire ──▶ application ──▶ handler of a service ──▶ answer

    a service or the client ──▶ calling ──▶ bytes

`wire` serves connections. `application` has the endpoints, and the FastAPI application around them. `calling` is the
other end. They share a few modules: `exchange` is one request and its answer, `answer` an answer that is ready,
`problems` a refusal, `limits` the sizes and times of connections, `origins` the hosts and pages that may call, and
`texts` the numbers and words of a query or a setting. `sharequeue.openapi` describes the endpoints.

Services import `application`, `answer`, `origins` and `limits`; the client and the pipeline import `calling` alone. The
room knows no service, no store and no single call.
"""
