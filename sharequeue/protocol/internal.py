"""The messages between services, under their former name."""

from sharequeue.protocol.messages.cluster import *  # noqa: F403
