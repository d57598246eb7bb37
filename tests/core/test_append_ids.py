"""The ids by which lost appends are found again."""

import os
import uuid

from sharequeue_gateway.record_log.append_store import new_append_id


def test_ids_differ_in_one_process_and_in_a_forked_one() -> None:
    mine = [new_append_id() for _ in range(3)]
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, " ".join(new_append_id() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    of_child = os.read(receiving, 4096).decode().split()
    os.close(receiving)
    os.close(sending)
    mine += [new_append_id() for _ in range(3)]
    assert len({uuid.UUID(each) for each in [*mine, *of_child]}) == 9
