"""A key that is unique until a group has finished its record: any order of the steps of several requests.

A request asks which records are finished, and appends later. In between others append, records are finished, or the
gateway dies; a client that got no answer sends again. The model knows each record, and whether it is finished.
"""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from sharequeue_gateway.record_log.unique_log import Kept, Rule, UniqueRecord

from tests.storage.record_logs import PostgresRecordLogs, new_topic

DAY_MS = 86_400_000
KEY = b"k" * 32
RECORD = UniqueRecord(0, KEY, b',"timestamp_ms":1,"key":"k","value":1')
STEPS = {"finish": (), "ask 0": (0,), "ask both": (0, 1), "append 0": (0,), "append 1": (1,)}
"""The steps, and the requests that take each."""


def test_a_key_has_one_unfinished_record_at_most(record_log: PostgresRecordLogs) -> None:
    with asyncio.Runner() as runner:
        logs = record_log.open()
        log = runner.run(logs.__aenter__())

        async def play(steps: list[str]) -> None:
            topic = new_topic()
            appended: set[int] = set()
            finished: set[int] = set()
            answers: dict[int, tuple[list[Kept], set[int]]] = {}
            for step in steps:
                if step == "finish":
                    finished |= appended
                for request in STEPS[step]:
                    if step.startswith("ask"):
                        rows = await log.unique.look(topic, [KEY])
                        answers[request] = [row for row in rows if row.offset in finished], set(finished)
                        continue
                    over, then = answers.pop(request, ([], set()))  # without a question, no record counts as finished
                    found: list[tuple[int, bool]] = []

                    def answer(places: list, found: list = found) -> bytes:
                        found.extend((place.offset, place.duplicate) for place in places)
                        return b""

                    await log.unique.append(topic, [RECORD], Rule(DAY_MS, over), 1, None, answer)
                    ((offset, duplicate),) = found
                    if duplicate:
                        assert offset not in then, "it was finished when the request asked"
                    else:
                        assert appended <= finished, "one was not"
                        appended.add(offset)

        @settings(max_examples=40, deadline=None)
        @given(st.lists(st.sampled_from(sorted(STEPS)), min_size=8, max_size=25))
        def run(steps: list[str]) -> None:
            runner.run(play(steps))

        try:
            run()
        finally:
            runner.run(logs.__aexit__(None, None, None))
