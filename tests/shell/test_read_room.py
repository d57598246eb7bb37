"""The room for reads of the log's database: who waits for whom."""

import asyncio

import pytest
from sharequeue_gateway.record_log.reading.read_room import ReadRoom

MOST = 100


class Reads:
    """Reads of a room, named by the bytes that they ask for."""

    def __init__(self) -> None:
        self.room = ReadRoom(MOST)
        self.tasks: dict[int, asyncio.Task[int]] = {}

    async def begin(self, *sizes: int) -> None:
        for size in sizes:
            self.tasks[size] = asyncio.create_task(self.room.enter(size))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def end(self, size: int, largest: int = 0) -> None:
        self.room.leave(self.tasks.pop(size).result(), largest)
        await self.settle()

    @property
    def under_way(self) -> list[int]:
        return [size for size, task in self.tasks.items() if task.done()]


def test_reads_wait_for_room_in_their_order() -> None:
    async def run() -> None:
        reads = Reads()
        await reads.begin(60, 50, 10)
        assert reads.under_way == [60]  # 10 would fit, but came later
        await reads.end(60)
        assert reads.under_way == [50, 10]

    asyncio.run(run())


def test_a_single_read_never_waits() -> None:
    async def run() -> None:
        reads = Reads()
        await reads.begin(1000, 1)
        assert reads.under_way == [1000]
        await reads.end(1000)
        assert reads.under_way == [1]

    asyncio.run(run())


def test_a_read_counts_as_the_largest_batch_so_far() -> None:
    async def run() -> None:
        reads = Reads()
        await reads.begin(1)
        await reads.end(1, largest=70)
        await reads.begin(2, 3)
        assert reads.under_way == [2]
        await reads.end(2)
        assert reads.under_way == [3]

    asyncio.run(run())


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "as its turn comes"])
def test_a_cancelled_read_keeps_no_room(late: bool) -> None:
    async def run() -> None:
        reads = Reads()
        await reads.begin(90, 80, 70)
        if late:
            reads.room.leave(90)
            reads.tasks.pop(90)
        reads.tasks.pop(80).cancel()
        await reads.settle()
        if not late:
            await reads.end(90)
        assert reads.under_way == [70]
        await reads.end(70)
        await reads.begin(99)
        assert reads.under_way == [99]

    asyncio.run(run())
