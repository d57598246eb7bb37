"""A request that finds nothing under way does the shared work in its own task. Its cancellation hurts no other one."""

import asyncio

from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.persister import PendingWrite, Persister
from sharequeue_share_coordinator.coordinator.operations import Operation

from sharequeue.background import IN_COMPANY
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.messages.cluster import ShardOwner, ShardsResponse
from sharequeue.protocol.messages.share_state import PartitionStateResult, SharePartitionResult, ShareStateResponse
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.codec import encode
from tests.core.share_partition_driver import fetched
from tests.core.write_events import Unheard
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_logs import PostgresRecordLogs, append, new_topic, read_all
from tests.storage.share_coordinators import held, new_key, running
from tests.storage.test_share_state_faults import rows_of
from tests.storage.written_locks import HELD, lock_write, locks_of, restored, timers
from tests.storage.written_locks import new_key as lock_key

HANG_S = 60


async def cancelled(task: "asyncio.Task[object]") -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_append_that_is_cancelled_while_it_commits_happens_once(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for number in range(IN_COMPANY + 1):
            await append(log, topic, [number])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            alone = asyncio.create_task(append(log, topic, ["alone"]))
            await waiting_for_a_lock(admin, "sharequeue-gateway-append")
            behind = [asyncio.create_task(append(log, topic, [f"behind{n}"])) for n in range(3)]
            await asyncio.sleep(0)
            await cancelled(alone)
            async with asyncio.timeout(HANG_S):  # it is looked up under the locks of its partition
                await waiting_for_a_lock(admin, "sharequeue-gateway-log")
        await asyncio.gather(*behind)
        values = await read_all(log, topic)
        assert sorted(map(str, values[IN_COMPANY + 1 :])) == ["alone", "behind0", "behind1", "behind2"]
        assert await append(log, topic, ["next"]) == IN_COMPANY + 5


async def test_the_state_is_read_again_after_a_write_that_was_cancelled_while_it_committed(
    module_database: str,
) -> None:
    key = new_key()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        running(proxy.url) as coordinator,
    ):
        assert await coordinator.init(key) == 0
        for offset in range(IN_COMPANY):
            assert await coordinator.write(key, 0, 1, (offset, offset, 2, 1)) == 0
        proxy.lose_answers = True
        write = Operation(key, coordinator.writing(0, 1, [(90, 90, 2, 1)]), False)
        alone = asyncio.create_task(coordinator.coordinator.commit([write]))
        await rows_of(admin, key, IN_COMPANY + 2)
        behind = asyncio.create_task(coordinator.write(key, 0, 1, (91, 91, 2, 1)))
        await asyncio.sleep(0)
        await cancelled(alone)
        proxy.cut()
        assert await behind == 0
        assert held(await coordinator.read(key)) == (0, [(0, IN_COMPANY - 1, 2, 1), (90, 91, 2, 1)])


async def test_a_state_write_whose_request_is_cancelled_is_sent_again() -> None:
    """Its outcome is not known, so its share coordinator gets it once more, and then the write has its outcome."""
    asked = asyncio.Event()
    bodies: list[bytes] = []
    owners: list[ShardOwner] = []
    done = PartitionStateResult(partition=0, error_code=0, error_message=None)
    written = ShareStateResponse(results=[SharePartitionResult("g", "0" * 32, done)])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        answered = encode(ShardsResponse(shards=owners, count=1))
        if length:
            bodies.append(await reader.readexactly(int(length)))
            asked.set()
            answered = encode(written)
        if not length or len(bodies) > 1:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(answered), answered))
            await writer.drain()
            writer.close()

    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Acc")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    owners.append(ShardOwner(shard=0, node_id="me", url=url, owner_epoch=1))
    client = ShareStateClient(url)
    persister = Persister(client, deadline_ms=30_000)
    persister._in_company = 0
    async with server:
        sending = asyncio.create_task(persister.run(Unheard()))
        await asyncio.sleep(0)
        led = LedSharePartition(SharePartitionKey("g", "0" * 32, 0), d.machine, "t", d.now_ms)
        submitted: list[PendingWrite] = []

        async def acknowledge() -> None:
            submitted.append(persister.submit(led, d.writes[0]))
            await persister.send_now(submitted[0].outcome)

        request = asyncio.create_task(acknowledge())
        await asked.wait()
        await cancelled(request)
        (pending,) = submitted
        try:
            assert await asyncio.wait_for(pending.outcome, 60) is None
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await client.close()
    assert (len(bodies), bodies[0], pending.doubtful) == (2, bodies[1], True)


async def test_locks_whose_request_is_cancelled_keep_no_other_locks_from_redis(redis_url: str) -> None:
    async with timers(redis_url) as lock_timers:
        keys = [lock_key() for _ in range(IN_COMPANY + 2)]
        for key in keys[2:]:
            assert await lock_timers.write_now(lock_write(key, HELD))
        alone = asyncio.create_task(lock_timers.write_now(lock_write(keys[0], HELD)))
        await asyncio.sleep(0)
        behind = asyncio.create_task(lock_timers.write_now(lock_write(keys[1], HELD)))
        await asyncio.sleep(0)
        await cancelled(alone)
        assert await asyncio.wait_for(behind, HANG_S)
        assert await locks_of(lock_timers, keys[1]) == restored(HELD)
        assert not lock_timers.degraded
