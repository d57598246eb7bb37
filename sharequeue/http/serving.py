"""The serving end, under its former names."""

from sharequeue.http.answer import JSON, Answer, Stream
from sharequeue.http.app import App, create_app, serve
from sharequeue.http.endpoint import Call, Endpoint, Handler

__all__ = ["JSON", "Answer", "App", "Call", "Endpoint", "Handler", "Stream", "create_app", "serve"]
