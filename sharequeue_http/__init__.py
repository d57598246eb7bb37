"""HTTP, both ends: a row of a table of calls becomes a route of a service, or a call of it.

    bytes ──▶ wire ──▶ application ──▶ handler of a service ──▶ answer

    a service or the client ──▶ calling ──▶ bytes

`wire` serves connections. `application` has the endpoints, and the FastAPI application around them. `calling` is the
other end. `forms` is pure, and protocols use it too: the form of a call and of an error, JSON, and what is wrong with a
body. The rooms share a few modules: `exchange` is one request and its answer, `unsent` what a client has still to take,
`answer` an answer that is ready, `problems` a refusal, `limits` the sizes and times of connections, `origins` the hosts
and pages that may call, `log` and `distribution` what is logged and measured.

Services import `application`, `answer`, `origins` and `limits`; the client and the pipeline import `calling` alone.
This package imports nothing of them and knows no queue: a protocol passes its calls in, and registers its errors.
"""
