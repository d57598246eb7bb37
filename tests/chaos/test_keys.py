"""Keys are made, rotated and revoked while services die, pause and restart: every promise of the chaos checker holds,
no gateway takes a key that it knows to be revoked, and none refuses a key that holds.
"""

import asyncio

import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.keys import Keyring
from tests.chaos.run import Run
from tests.chaos.test_chaos import SOAK_S, judge


async def turn_keys(stack: Stack, seed: int, seconds: float, resets: int) -> tuple[Run, Keyring]:
    keyring = Keyring(stack, seed)
    await keyring.prepare()
    run = Run(stack, seed, seconds, stores=False, resets=resets, login=keyring.login)
    async with asyncio.TaskGroup() as tasks:
        turning = tasks.create_task(keyring.run(run.history))
        watching = tasks.create_task(keyring.watch())
        await run.run()
        keyring.stopping = True
        await turning
        watching.cancel()
    await keyring.close()
    return run, keyring


def judge_keys(stack: Stack, seed: int, seconds: float, resets: int, least: int) -> None:
    run, keyring = asyncio.run(turn_keys(stack, seed, seconds, resets))
    print(
        f"{keyring.revoked} keys were revoked; clients saw {keyring.client_refusals} refusals, "
        f"the watcher {keyring.watched_refusals}"
    )
    assert not keyring.complaints, f"seed {seed}: " + "\n".join(keyring.complaints)
    judge(run, seed)
    assert keyring.revoked >= least
    assert keyring.client_refusals > 0
    assert keyring.watched_refusals > 0


@pytest.mark.soak
def test_every_promise_holds_while_keys_are_revoked_for_three_minutes(cluster_with_keys: Stack, seed: int) -> None:
    judge_keys(cluster_with_keys, seed, SOAK_S, resets=4, least=30)
