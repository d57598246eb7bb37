"""Every call of the services."""

from sharequeue.protocol.apis.groups import *  # noqa: F403
