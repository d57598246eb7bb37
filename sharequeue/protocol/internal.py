"""The messages between services, under their former name."""

from sharequeue.protocol.messages.cluster import *  # noqa: F403
from sharequeue.protocol.messages.leaders import *  # noqa: F403
from sharequeue.protocol.messages.share_state import *  # noqa: F403
