"""The messages of the calls."""

from sharequeue.protocol.messages.records import *  # noqa: F403
