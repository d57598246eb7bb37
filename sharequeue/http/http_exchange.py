"""The exchange of a connection, under its former name."""

from sharequeue.http.connection_exchange import *  # noqa: F403
