"""The settings of groups: read, checked, changed."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from sharequeue.protocol.configs import changed_group_config, group_config_values
from sharequeue.protocol.messages.groups import ShareGroupServiceConfig
from sharequeue.protocol.service_configs import clamped
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


class GroupConfigs:
    """The settings of a group may be set before the group exists."""

    def __init__(
        self, database: Database, metadata: Metadata, groups: GroupRegistry, service: Mapping[str, int]
    ) -> None:
        self.service = service
        self._database = database
        self._metadata = metadata
        self._groups = groups
        self._in_force = groups.service.kafka_defaults, groups.configs
        self._lock = asyncio.Lock()

    async def stored(self, group_id: str) -> dict[str, str]:
        """The settings that differ from the defaults."""
        config: dict[str, str] = await self._database.query(store.group_config, group_id)
        return config

    async def in_force(self, group_id: str) -> dict[str, str]:
        """All settings. Raises: as `Database.fence`."""
        self._database.fence(group_id)
        return group_config_values(group_id, await self.stored(group_id), *self._in_force)

    async def service_config(self, group_id: str) -> ShareGroupServiceConfig:
        """Raises: as `Database.fence`."""
        self._database.fence(group_id)
        found = clamped(await self.stored(group_id), *self._in_force)
        return ShareGroupServiceConfig(service=dict(self.service), clamped=found)

    async def update(self, group_id: str, changes: Mapping[str, str], reset: Sequence[str]) -> dict[str, str]:
        """Check all changes, store them, return the settings in force. Raises: InvalidConfig."""
        async with self._lock:
            fence = self._database.fence(group_id)
            stored = await self.stored(group_id)
            config = changed_group_config(stored, changes, reset, *self._in_force)
            if config != stored:
                await self._database.query(store.save_group_config, fence, group_id, config)
                await self._groups.configure(group_id, config)
                log.info("group settings changed", extra=fields(group_id=quoted(group_id), before=stored, after=config))
                await self._metadata.catch_up()
        return group_config_values(group_id, config, *self._in_force)
