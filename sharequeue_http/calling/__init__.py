"""The calling end of HTTP: what the client, the command line, the pipeline and the services use to call a service.

    row of a call + request ──▶ caller ──────▶ connections ──▶ bytes
    stream of events ─────────▶ event_reader ─▶ a connection of its own

`caller` encodes a request, retries what is retriable until the deadline, and makes an exception of a problem document.
It is the one place that retries, and the one that knows which services its process serves: a request for one of these
takes no connection. `connections` sends one request at a time on each open connection. It tells a request
that was not sent (`CannotConnect`) from one whose outcome is unknown (`ConnectionLost`).

Every room above `sharequeue_http` may call this one. It imports neither the serving end nor a web framework: a program
that only calls installs none.
"""
