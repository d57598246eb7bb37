"""Transactions in a topic, written by SQL beside the gateway, which finds them as it finds another gateway's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from tests.http.calls import Gateway
from tests.storage import transactions_by_hand as by_hand

Answer = TypeVar("Answer")


class Transactions:
    """Makes a topic, and transactions in its first partition."""

    def __init__(self, gateway: Gateway, database_url: str, topic: str, **config: Any) -> None:
        self.gateway = gateway
        self.topic = topic
        self._database_url = database_url
        self._place = (gateway.create_topic(topic, **config)["topic_id"], 0)

    def _run(self, work: Callable[[Any], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            connection = await asyncpg.connect(self._database_url)
            try:
                return await work(connection)
            finally:
                await connection.close()

        return asyncio.run(run())

    def begin(self) -> str:
        return self._run(by_hand.begin)

    def send(self, values: str, transaction: str | None = None) -> None:
        self._run(lambda connection: by_hand.append(connection, self._place, values, transaction))

    def end(self, transaction: str, *, commit: bool) -> None:
        self._run(lambda connection: by_hand.end(connection, transaction, commit=commit))

    def whole(self, values: str, *, commit: bool) -> None:
        """A transaction of one batch."""
        transaction = self.begin()
        self.send(values, transaction)
        self.end(transaction, commit=commit)
