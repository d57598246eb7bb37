"""The messages of reports, under their former name."""

from sharequeue.protocol.messages.reports import *  # noqa: F403
