"""The serving end, under its former name."""

from sharequeue.http.endpoint import *  # noqa: F403
