"""Schedules the lines of `sharequeue produce --delay` or `--at`: requests of up to 1,000 records, one after another."""

import uuid
from typing import Final

from sharequeue.cli.login import client_of
from sharequeue.cli.output import decode
from sharequeue.cli.produce.lines import BadLine, Lines, read_lines
from sharequeue.client import ApiError
from sharequeue.client.new_record import encode_record
from sharequeue.client.producer import SCHEDULE
from sharequeue.client.scheduling import When, timed
from sharequeue.protocol import apis
from sharequeue.protocol.messages.scheduled import ScheduledRecord

AT_ONCE_RECORDS: Final = 1000
AT_ONCE_BYTES: Final = 1 << 20


async def schedule_lines(
    url: str, topic: str, lines: Lines, when: When, descriptor: int, scheduled: list[ScheduledRecord]
) -> None:
    """Schedule a record for each line. `scheduled`: gets the entries of the answers.

    Raises: BadLine: no line after that one is scheduled; ApiError: the lines of that request and later ones are not.
    """
    client = client_of(url)
    try:
        waiting: list[bytes] = []
        size = number = 0

        async def send() -> None:
            nonlocal size
            if waiting:
                body = b'{"records":[%b]}' % b",".join(waiting)
                headers = {"Idempotency-Key": uuid.uuid4().hex}
                answer, _ = await client.relay(SCHEDULE, body, path={"topic": topic}, headers=headers)
                scheduled.extend(decode(answer, apis.SCHEDULE_RECORDS).scheduled)
                waiting.clear()
                size = 0

        try:
            async for line in read_lines(descriptor):
                number += 1
                record = lines.record(line, number)
                if record is None:
                    continue
                encoded = timed(encode_record(record), when)
                if len(waiting) >= AT_ONCE_RECORDS or (waiting and size + len(encoded) > AT_ONCE_BYTES):
                    await send()
                waiting.append(encoded)
                size += len(encoded)
        except BadLine:
            await send()
            raise
        await send()
    except ApiError as error:
        error.detail = f"{error.detail} (after {len(scheduled)} scheduled records)"
        raise
    finally:
        await client.close()
