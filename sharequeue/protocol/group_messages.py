"""The messages of groups, under their former name."""

from sharequeue.protocol.messages.groups import *  # noqa: F403
