"""The messages of compaction, under their former name."""

from sharequeue.protocol.messages.compaction import *  # noqa: F403
