"""The messages of audits, under their former name."""

from sharequeue.protocol.messages.audit import *  # noqa: F403
