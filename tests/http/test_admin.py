"""`Admin` has the calls of operators, each with its parameters, and lists that follow their pages."""

import pytest

from sharequeue.client import Admin, IllegalState, Producer, UnknownTopicOrPartition, sync
from sharequeue.protocol.messages.access import Acl
from sharequeue.stack.stack import Stack
from tests.http.client_calls import consumers, in_event_loop, produce


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@in_event_loop
async def test_topics_groups_and_their_records_are_managed(stack: Stack, name: str) -> None:
    async with Admin(stack.url) as admin:
        made = await admin.create_topic(name, partitions=2, config={"retention.ms": "1000000"})
        assert (made.name, made.partitions) == (name, 2)
        assert name in [topic.name async for topic in admin.list_topics(page_size=1)]
        assert (await admin.update_topic(name, partitions=3, reset=["retention.ms"])).partitions == 3
        await produce(stack, name, *range(5), partition=0, key="k")
        config = await admin.update_share_group_config(name, config={"share.delivery.count.limit": "3"})
        assert config["share.delivery.count.limit"] == "3"
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            first, second, *_ = await consumer.poll()
            consumer.acknowledge(first, "reject", reason="bad")
            consumer.acknowledge(second)
            await consumer.commit()
            (held,) = [
                page.partitions[0] async for page in admin.list_in_flight_records(name, topic=name) if page.partitions
            ]
            assert held.partition == 0
            letters = [letter async for letter in admin.list_dead_letters(name, reason="bad")]
            while not letters:
                letters = [letter async for letter in admin.list_dead_letters(name, reason="bad")]
        assert (await admin.look_up_record(name, name, 0, 1)).state == "finished"
        assert [life.offset async for life in admin.find_records(name, name, "k", partition=0, page_size=2)] == [
            4,
            3,
            2,
            1,
            0,
        ]
        assert (await admin.drop_dead_letters(name, reason="bad")).dropped == 1
        assert name in [group.group_id async for group in admin.list_share_groups(page_size=1)]
        reset = await admin.reset_share_group_offsets(name, "latest", topics=[{"topic": name}], force=True)
        assert [place.start_offset for topic in reset.topics for place in topic.partitions] == [5, 0, 0]
        (topic,) = [entry async for entry in admin.list_share_group_offsets(name)]
        assert sum(place.lag or 0 for place in topic.partitions) == 0
        await admin.delete_share_group(name, force=True)
        await admin.delete_topic(name)
        with pytest.raises(UnknownTopicOrPartition):
            await admin.describe_topic(name)
    with pytest.raises(IllegalState, match="closed"):
        await admin.describe_topic(name)


@in_event_loop
async def test_scheduled_records_and_schedules_are_managed(stack: Stack, name: str) -> None:
    async with Admin(stack.url) as admin, Producer(stack.url) as producer:
        later = [await producer.send(name, n, delay_ms=3_600_000) for n in range(3)]
        found = [record.schedule_id async for record in admin.list_scheduled_records(name, page_size=1)]
        assert sorted(found) == sorted(each.schedule_id for each in later)
        assert (await admin.cancel_scheduled_records(name, schedule_ids=found)).cancelled == found
        await admin.put_schedule(name, "nightly", "0 3 * * *", {"value": {"to": "all"}}, time_zone="Europe/Berlin")
        assert [each.name async for each in admin.list_due(page_size=1) if each.topic == name] == ["nightly"]
        assert [each.name for each in (await admin.list_schedules(name)).schedules] == ["nightly"]
        assert (await admin.update_schedule(name, "nightly", paused=True)).paused
        await producer.send(name, "now")
        (record,) = (await admin.read_records(name, 0)).records
        assert bytes(record.value or b"") == b'"now"'
        await admin.delete_schedule(name, "nightly")


def test_keys_and_rights_are_managed_without_async(stack: Stack, name: str) -> None:
    who = f"User:{name}"
    right = {"principal": who, "operation": "READ", "resource_type": "TOPIC", "resource_name": name}
    with sync.Admin(stack.url) as admin:
        made = [admin.create_key(who, description=f"key {number}") for number in range(3)]
        listed = [key.key_id for key in admin.list_keys(principal=who, page_size=1)]
        assert sorted(listed) == sorted(key.key_id for key in made)
        assert admin.revoke_key(made[0].key_id).revoked_at_ms
        assert len(admin.add_acls([right, Acl(**{**right, "operation": "WRITE"})]).acls) == 2  # type: ignore[arg-type]
        assert [acl.operation for acl in admin.list_acls(principal=who, operation="READ").acls] == ["READ"]
        assert len(admin.remove_acls(principal=who).acls) == 2
        with pytest.raises(UnknownTopicOrPartition):
            admin.describe_topic(name)
