# Made by `make renew-document` from the table of calls; do not edit. docs/admin_client.py makes it.
"""The calls of operators, one method each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from sharequeue.client.operator_calls import OperatorCalls
from sharequeue.protocol import apis
from sharequeue.protocol.messages.access import Acl, AclList, CreatedKey, KeyDescription, RevokedKeys
from sharequeue.protocol.messages.dead_letters import DeadLetter, DropResult, RedriveResult
from sharequeue.protocol.messages.groups import (
    GroupTopicOffsets,
    ResetOffsetsResult,
    ResetTopic,
    ShareGroupDescription,
    ShareGroupListing,
    ShareGroupServiceConfig,
)
from sharequeue.protocol.messages.in_flight import ListInFlightResponse, RecordChange, RecordLife, Window
from sharequeue.protocol.messages.records import ProduceRecord, RecordPage
from sharequeue.protocol.messages.reports import ActivityEntry, GroupAttention, SampleList
from sharequeue.protocol.messages.scheduled import (
    CancelledRecords,
    DueRecord,
    ScheduleDescription,
    ScheduledListing,
    ScheduleList,
    ScheduleSummary,
)
from sharequeue.protocol.messages.topics import (
    DeletedRecords,
    DeleteRecordsPartition,
    Topic,
    TopicDescription,
    TopicListing,
)
from sharequeue.protocol.messages.transactions import EndedTransaction, TransactionDescription, TransactionList


class Admin(OperatorCalls):
    """Manages topics, groups, dead letters, scheduled records, transactions, keys and rights.

    There is a method for each such call, with its name. It takes the parameters of the path and the members of the
    request, and returns the answer. A member with members of its own is a mapping, or the message of that form. A
    method that lists yields what it lists, and asks for the next page by itself; a list with several kinds yields its
    pages. docs/calls.md says what each call does. Each raises ApiError.

    Args:
        url, token, headers, ca: as of Producer. deadline_ms: for all tries of a call.

    Example:
        async with Admin("http://127.0.0.1:8080") as admin:
            await admin.create_topic("orders", partitions=4)
            async for topic in admin.list_topics():
                print(topic.name)
    """

    async def create_key(
        self, principal: str, *, expires_at_ms: int | None = None, description: str = ""
    ) -> CreatedKey:
        """Make a key of a principal; its text is in this answer alone."""
        return await self._call(
            CreatedKey, apis.CREATE_KEY, {}, principal=principal, expires_at_ms=expires_at_ms, description=description
        )

    def list_keys(self, *, principal: str | None = None, page_size: int = 100) -> AsyncIterator[KeyDescription]:
        """List keys by id, a page at a time, without their secrets."""
        return self._items("keys", apis.LIST_KEYS, {}, principal=principal, page_size=page_size)

    async def rotate_key(
        self, key_id: str, *, overlap_ms: int = 86400000, expires_at_ms: int | None = None
    ) -> CreatedKey:
        """Make another key of the same principal; the old one holds for `overlap_ms` more."""
        return await self._call(
            CreatedKey, apis.ROTATE_KEY, {"key_id": key_id}, overlap_ms=overlap_ms, expires_at_ms=expires_at_ms
        )

    async def revoke_key(self, key_id: str) -> KeyDescription:
        """Revoke a key: within 5 seconds no gateway takes it any more."""
        return await self._call(KeyDescription, apis.REVOKE_KEY, {"key_id": key_id})

    async def revoke_keys(self, made_before_ms: int) -> RevokedKeys:
        """Revoke every key that was made before a time."""
        return await self._call(RevokedKeys, apis.REVOKE_KEYS, {}, made_before_ms=made_before_ms)

    async def add_acls(self, acls: Sequence[Acl | Mapping[str, Any]]) -> AclList:
        """Add rights of principals."""
        return await self._call(AclList, apis.ADD_ACLS, {}, acls=acls)

    async def list_acls(
        self,
        *,
        principal: str | None = None,
        operation: Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"] | None = None,
        resource_type: Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"] | None = None,
        resource_name: str | None = None,
        pattern_type: Literal["LITERAL", "PREFIXED"] | None = None,
    ) -> AclList:
        """List rights."""
        return await self._call(
            AclList,
            apis.LIST_ACLS,
            {},
            principal=principal,
            operation=operation,
            resource_type=resource_type,
            resource_name=resource_name,
            pattern_type=pattern_type,
        )

    async def remove_acls(
        self,
        *,
        principal: str | None = None,
        operation: Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"] | None = None,
        resource_type: Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"] | None = None,
        resource_name: str | None = None,
        pattern_type: Literal["LITERAL", "PREFIXED"] | None = None,
    ) -> AclList:
        """Remove the rights that have these members; answers those that were removed."""
        return await self._call(
            AclList,
            apis.REMOVE_ACLS,
            {},
            principal=principal,
            operation=operation,
            resource_type=resource_type,
            resource_name=resource_name,
            pattern_type=pattern_type,
        )

    def list_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        closed: bool = False,
        records: bool = False,
        page_size: int = 100,
    ) -> AsyncIterator[DeadLetter]:
        """List a group's dead letters, with their reasons, and what became of them."""
        return self._items(
            "dead_letters",
            apis.LIST_DEAD_LETTERS,
            {"group": group},
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            cause=cause,
            reason=reason,
            after_ms=after_ms,
            before_ms=before_ms,
            closed=closed,
            records=records,
            page_size=page_size,
        )

    async def drop_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        max_records: int | None = None,
        page_token: str | None = None,
        dry_run: bool = False,
    ) -> DropResult:
        """Close dead letters of a group for good: they are open no more, and are never sent back."""
        return await self._call(
            DropResult,
            apis.DROP_DEAD_LETTERS,
            {"group": group},
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            cause=cause,
            reason=reason,
            after_ms=after_ms,
            before_ms=before_ms,
            max_records=max_records,
            page_token=page_token,
            dry_run=dry_run,
        )

    async def redrive_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        max_records: int | None = None,
        page_token: str | None = None,
        dry_run: bool = False,
        to: Literal["retry", "source"] = "retry",
    ) -> RedriveResult:
        """Send a group's dead letters back to their topics."""
        return await self._call(
            RedriveResult,
            apis.REDRIVE_DEAD_LETTERS,
            {"group": group},
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            cause=cause,
            reason=reason,
            after_ms=after_ms,
            before_ms=before_ms,
            max_records=max_records,
            page_token=page_token,
            dry_run=dry_run,
            to=to,
        )

    async def get_share_group_config(self, group: str) -> dict[str, str]:
        """Get the settings of a group in force."""
        return await self._call(dict[str, str], apis.GET_SHARE_GROUP_CONFIG, {"group": group})

    async def update_share_group_config(
        self, group: str, *, config: Mapping[str, str] = {}, reset: Sequence[str] = ()
    ) -> dict[str, str]:
        """Change settings of a group; the group need not exist yet."""
        return await self._call(
            dict[str, str], apis.UPDATE_SHARE_GROUP_CONFIG, {"group": group}, config=config, reset=reset
        )

    async def get_share_group_service_config(self, group: str) -> ShareGroupServiceConfig:
        """Get the service-wide settings of groups, and which of a group's own they clamp."""
        return await self._call(ShareGroupServiceConfig, apis.GET_SHARE_GROUP_SERVICE_CONFIG, {"group": group})

    def list_share_group_offsets(self, group: str, *, page_size: int = 1000) -> AsyncIterator[GroupTopicOffsets]:
        """List the start offset and the lag of every share-partition of a group, a page at a time."""
        return self._items("topics", apis.LIST_SHARE_GROUP_OFFSETS, {"group": group}, page_size=page_size)

    def list_in_flight_records(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        loaded: bool = False,
        page_size: int = 1000,
    ) -> AsyncIterator[ListInFlightResponse]:
        """List the records that a group has in flight, with their holders, lock ends and delivery counts."""
        return self._pages(
            apis.LIST_IN_FLIGHT_RECORDS,
            {"group": group},
            topic=topic,
            partition=partition,
            offset=offset,
            loaded=loaded,
            page_size=page_size,
        )

    async def look_up_record(self, group: str, topic: str, partition: int, offset: int) -> RecordLife:
        """Look up what a group has done with one record: not fetched, held, delayed, finished, dead, redriven."""
        return await self._call(
            RecordLife, apis.LOOK_UP_RECORD, {"group": group, "topic": topic, "partition": partition, "offset": offset}
        )

    def find_records(
        self, group: str, topic: str, key: str, *, partition: int | None = None, page_size: int = 10
    ) -> AsyncIterator[RecordLife]:
        """Find the records with a key, the newest first, and what a group has done with each."""
        return self._items(
            "records",
            apis.FIND_RECORDS,
            {"group": group, "topic": topic},
            key=key,
            partition=partition,
            page_size=page_size,
        )

    async def describe_window(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        from_offset: int | None = None,
        to_offset: int | None = None,
        buckets: int = 100,
    ) -> Window:
        """Count what a group does with the offsets of a partition, in up to 1,000 buckets of equal size."""
        return await self._call(
            Window,
            apis.DESCRIBE_WINDOW,
            {"group": group, "topic": topic, "partition": partition},
            from_offset=from_offset,
            to_offset=to_offset,
            buckets=buckets,
        )

    async def change_record(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        action: Literal["release", "reject", "extend", "deliver_now"],
        delivery_count: int,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        lock_duration_ms: int | None = None,
    ) -> RecordChange:
        """Release, reject or extend a held record by hand; deliver a delayed one now, or reject it."""
        return await self._call(
            RecordChange,
            apis.CHANGE_RECORD,
            {"group": group, "topic": topic, "partition": partition, "offset": offset},
            action=action,
            delivery_count=delivery_count,
            reason=reason,
            delay_ms=delay_ms,
            lock_duration_ms=lock_duration_ms,
        )

    async def leave_share_group(self, group: str, member_id: str) -> None:
        """Leave a group: the member's waiting fetches end, its share session is closed, and its records are
        released."""
        await self._call(object, apis.LEAVE_SHARE_GROUP, {"group": group, "member_id": member_id})

    def list_share_groups(
        self, *, state: str | None = None, work: bool = False, page_size: int = 1000
    ) -> AsyncIterator[ShareGroupListing]:
        """List groups by id, a page at a time."""
        return self._items("groups", apis.LIST_SHARE_GROUPS, {}, state=state, work=work, page_size=page_size)

    async def describe_share_group(
        self, group: str, *, page_size: int = 1000, page_token: str | None = None
    ) -> ShareGroupDescription:
        """Describe a group: its state and its members, what it has to do now, and who works on it."""
        return await self._call(
            ShareGroupDescription,
            apis.DESCRIBE_SHARE_GROUP,
            {"group": group},
            page_size=page_size,
            page_token=page_token,
        )

    async def delete_share_group(self, group: str, *, force: bool = False) -> None:
        """Delete a group that is not in use, with its offsets in every topic."""
        await self._call(object, apis.DELETE_SHARE_GROUP, {"group": group}, force=force)

    async def reset_share_group_offsets(
        self,
        group: str,
        to: Literal["earliest", "latest", "current", "offset", "datetime"],
        *,
        topics: Sequence[ResetTopic | Mapping[str, Any]] | None = None,
        offset: int | None = None,
        datetime: str | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> ResetOffsetsResult:
        """Set the start offsets of a group that is not in use; a group that does not exist is created."""
        return await self._call(
            ResetOffsetsResult,
            apis.RESET_SHARE_GROUP_OFFSETS,
            {"group": group},
            to=to,
            topics=topics,
            offset=offset,
            datetime=datetime,
            dry_run=dry_run,
            force=force,
        )

    async def delete_share_group_offsets(self, group: str, topic: str, *, force: bool = False) -> None:
        """Delete the offsets of a group that is not in use in a topic."""
        await self._call(object, apis.DELETE_SHARE_GROUP_OFFSETS, {"group": group, "topic": topic}, force=force)

    async def read_records(
        self,
        topic: str,
        partition: int,
        *,
        offset: int = 0,
        max_records: int = 500,
        max_bytes: int = 52428800,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        topic_id: str | None = None,
    ) -> RecordPage:
        """Read records by offset, without a group and without locks."""
        return await self._call(
            RecordPage,
            apis.READ_RECORDS,
            {"topic": topic, "partition": partition},
            offset=offset,
            max_records=max_records,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topic_id=topic_id,
        )

    def list_groups_by_attention(
        self, *, group_id: str | None = None, page_size: int = 100
    ) -> AsyncIterator[GroupAttention]:
        """List groups in the order of their need for attention, each with its work, its workers and the reasons."""
        return self._items("groups", apis.LIST_ATTENTION, {}, group_id=group_id, page_size=page_size)

    def list_activity(
        self,
        *,
        from_ms: int = 0,
        to_ms: int | None = None,
        group_id: str | None = None,
        topic: str | None = None,
        page_size: int = 1000,
    ) -> AsyncIterator[ActivityEntry]:
        """Report the records that went through the queue, by hour, group and partition, a page at a time."""
        return self._items(
            "activity",
            apis.LIST_ACTIVITY,
            {},
            from_ms=from_ms,
            to_ms=to_ms,
            group_id=group_id,
            topic=topic,
            page_size=page_size,
        )

    async def list_samples(
        self,
        *,
        group_id: str | None = None,
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        step_ms: int = 10000,
    ) -> SampleList:
        """Report what the cluster, a group or a topic had to do, and did, over the last week."""
        return await self._call(
            SampleList,
            apis.LIST_SAMPLES,
            {},
            group_id=group_id,
            topic=topic,
            from_ms=from_ms,
            to_ms=to_ms,
            step_ms=step_ms,
        )

    def list_scheduled_records(self, topic: str, *, page_size: int = 1000) -> AsyncIterator[ScheduledListing]:
        """List and count the scheduled records of a topic, the next one due first."""
        return self._items("scheduled", apis.LIST_SCHEDULED_RECORDS, {"topic": topic}, page_size=page_size)

    def list_due(self, *, page_size: int = 1000) -> AsyncIterator[DueRecord]:
        """List what is due next in all topics: scheduled records, and the next record of each schedule that is not
        paused."""
        return self._items("due", apis.LIST_DUE, {}, page_size=page_size)

    async def cancel_scheduled_records(
        self, topic: str, *, schedule_ids: Sequence[str] = (), key: str | None = None
    ) -> CancelledRecords:
        """Cancel scheduled records by their ids or their key, so that they never enter the log."""
        return await self._call(
            CancelledRecords, apis.CANCEL_SCHEDULED_RECORDS, {"topic": topic}, schedule_ids=schedule_ids, key=key
        )

    async def put_schedule(
        self,
        topic: str,
        name: str,
        cron: str,
        record: ProduceRecord | Mapping[str, Any],
        *,
        time_zone: str = "UTC",
        missed: Literal["one", "all", "none"] = "one",
        paused: bool = False,
    ) -> ScheduleSummary:
        """Make or replace a schedule: one record of the topic at each of its times."""
        return await self._call(
            ScheduleSummary,
            apis.PUT_SCHEDULE,
            {"topic": topic, "name": name},
            cron=cron,
            record=record,
            time_zone=time_zone,
            missed=missed,
            paused=paused,
        )

    async def get_schedule(self, topic: str, name: str) -> ScheduleDescription:
        """Describe a schedule: its times and its record."""
        return await self._call(ScheduleDescription, apis.GET_SCHEDULE, {"topic": topic, "name": name})

    async def update_schedule(
        self, topic: str, name: str, *, paused: bool | None = None, run: bool = False
    ) -> ScheduleSummary:
        """Pause a schedule, let it go on, or make one record now."""
        return await self._call(
            ScheduleSummary, apis.UPDATE_SCHEDULE, {"topic": topic, "name": name}, paused=paused, run=run
        )

    async def delete_schedule(self, topic: str, name: str) -> None:
        """Delete a schedule. Records that it has made stay."""
        await self._call(object, apis.DELETE_SCHEDULE, {"topic": topic, "name": name})

    async def list_schedules(self, topic: str) -> ScheduleList:
        """List the schedules of a topic by name."""
        return await self._call(ScheduleList, apis.LIST_SCHEDULES, {"topic": topic})

    async def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] = {}) -> Topic:
        """Create a topic."""
        return await self._call(Topic, apis.CREATE_TOPIC, {}, name=name, partitions=partitions, config=config)

    def list_topics(self, *, page_size: int = 1000) -> AsyncIterator[TopicListing]:
        """List topics by name, a page at a time."""
        return self._items("topics", apis.LIST_TOPICS, {}, page_size=page_size)

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Describe a topic: settings and the offsets of its partitions."""
        return await self._call(TopicDescription, apis.DESCRIBE_TOPIC, {"topic": topic})

    async def update_topic(
        self, topic: str, *, partitions: int | None = None, config: Mapping[str, str] = {}, reset: Sequence[str] = ()
    ) -> Topic:
        """Add partitions or change settings."""
        return await self._call(
            Topic, apis.UPDATE_TOPIC, {"topic": topic}, partitions=partitions, config=config, reset=reset
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, its records and every group's state for it."""
        await self._call(object, apis.DELETE_TOPIC, {"topic": topic})

    async def delete_records(
        self,
        topic: str,
        partitions: Sequence[DeleteRecordsPartition | Mapping[str, Any]],
        *,
        topic_id: str | None = None,
    ) -> DeletedRecords:
        """Delete records below an offset; -1 is the log end. Every gateway knows it within a second."""
        return await self._call(
            DeletedRecords, apis.DELETE_RECORDS, {"topic": topic}, partitions=partitions, topic_id=topic_id
        )

    async def terminate_transaction(self, transaction: str) -> EndedTransaction:
        """Abort a transaction as an operator: one that holds back the readers of committed records."""
        return await self._call(EndedTransaction, apis.TERMINATE_TRANSACTION, {"transaction": transaction})

    def list_transactions(
        self,
        *,
        state: Literal["open", "committed", "aborted"] = "open",
        transactional_id: str | None = None,
        transactional_id_prefix: str | None = None,
        older_than_ms: int = 0,
        page_size: int = 1000,
    ) -> AsyncIterator[TransactionList]:
        """List the transactions of one state, a page at a time."""
        return self._pages(
            apis.LIST_TRANSACTIONS,
            {},
            state=state,
            transactional_id=transactional_id,
            transactional_id_prefix=transactional_id_prefix,
            older_than_ms=older_than_ms,
            page_size=page_size,
        )

    async def describe_transaction(self, transaction: str) -> TransactionDescription:
        """Describe a transaction: its state, and the partitions that it wrote to."""
        return await self._call(TransactionDescription, apis.DESCRIBE_TRANSACTION, {"transaction": transaction})
