"""Faults of share groups: protocol 2.2 heartbeat, 2.7 to 2.9 offsets, 3 membership, 4.3 assignor, 5 initialisation."""

from tests.mutants.mutant import group_coordinator

MUTANTS = [
    *group_coordinator(
        "share_group/assignor",
        (
            "4.3 a member with too many partitions gives some back",
            "        if len(some) > count:",
            "        if False:",
        ),
        (
            "4.3 partitions with more holders are given back first",
            "sorted(sorted(some), key=shared.__getitem__)",
            "sorted(sorted(some), key=lambda partition: -shared[partition])",
        ),
        (
            "4.3 a partition is held by no more members than share it",
            "if holders > sharing}",
            "if holders > len(held)}",
        ),
        (
            "4.3 no member is given a partition twice",
            "            if partition in held[member]:\n",
            "            if False:\n",
        ),
        (
            "4.3 a partition that no short member may take is exchanged",
            "        _exchange(held, desired, kept, partition, short)",
            "        pass",
        ),
        (
            "4.3 a member with the larger number keeps it",
            "    order = [member for member, count in enumerate(counts) if count > small]\n",
            "    order = sorted(range(members), key=spread.__getitem__, reverse=True)\n",
        ),
        (
            "4.3 the order of the members does not matter",
            "for member_id in sorted(subscriptions)}",
            "for member_id in subscriptions}",
        ),
    ),
    *group_coordinator(
        "share_group/machine",
        (
            "2.2 a full group says so before a member is unknown",
            "if member is None and len(self.members) >= settings.max_size:",
            "if member is None and epoch == JOIN_EPOCH and len(self.members) >= settings.max_size:",
        ),
        (
            "2.2 the previous epoch is accepted",
            "(JOIN_EPOCH, member.member_epoch, member.previous_member_epoch):",
            "(JOIN_EPOCH, member.member_epoch):",
        ),
        (
            "2.2 a full request is answered with the assignment",
            "            or request.subscribed_topic_names is not None\n",
            "",
        ),
        (
            "2.2 a changed assignment is sent",
            "            or updated.assignment != member.assignment\n",
            "",
        ),
        (
            "3.3 initialised partitions without a member raise the epoch",
            "            or (assigned_all and not subscribed_topics.all_assigned(view, self._assigned()))\n",
            "",
        ),
        (
            "3.3 a member that waits for an assignment does not raise the epoch again",
            "(assigned_all and not subscribed_topics.all_assigned",
            "(not subscribed_topics.all_assigned",
        ),
        (
            "3.3 changed topics raise the epoch",
            "            or seen != epochs.metadata_hash\n",
            "",
        ),
        (
            "3.3 an assignment has only topics that the member subscribes to",
            "subscribed_topics.of_topics(own, updated.subscribed_topic_names, topics),",
            "own,",
        ),
        (
            "3.3 a changed subscription takes effect before the next target",
            "        elif resubscribed:\n",
            "        elif False:\n",
        ),
        (
            "3.3 a clock set back does not stop assignments",
            "not (assigned_at_ms and 0 <= now_ms - assigned_at_ms <",
            "not (assigned_at_ms and now_ms - assigned_at_ms <",
        ),
        (
            "3.4 after the last member the next is assigned at once",
            "assignment_epoch=epochs.group_epoch, assigned_at_ms=0)",
            "assignment_epoch=epochs.group_epoch)",
        ),
        (
            "3.4 a departure computes the metadata hash again",
            "group_epoch=self.epochs.group_epoch + 1, metadata_hash=subscribed_topics.metadata_hash(view)",
            "group_epoch=self.epochs.group_epoch + 1",
        ),
        (
            "3.4 a member that left has no target",
            "            target={member_id: {} for member_id in member_ids if member_id in self.target},\n",
            "",
        ),
        (
            "5 a heartbeat that only repeats initialisations names the epoch of the others",
            "state_epoch=epochs.group_epoch,\n        )\n\n    def _assigned",
            "state_epoch=0,\n        )\n\n    def _assigned",
        ),
        (
            "5 an initialisation is not repeated within the retry interval",
            "            self._asked_at[topic_id] = with_all(self._asked_at.get(topic_id, {}), partitions, now_ms)",
            "            pass",
        ),
        (
            "5 a late answer changes nothing",
            "partitions.intersection(self.topics.get(topic_id, GroupTopic()).initializing)",
            "partitions",
        ),
    ),
    *group_coordinator(
        "share_group/initialization",
        (
            "5 a group begins alike in all partitions of its first sight",
            "grown = 0 < topic.first_partitions <= partition",
            "grown = topic_id in known",
        ),
        (
            "5 partitions that a topic gets later are read from their start",
            "grown = 0 < topic.first_partitions <= partition",
            "grown = False",
        ),
        (
            "5 an unanswered initialisation is repeated under its epoch",
            "topic.initializing.get(partition) or state_epoch",
            "state_epoch",
        ),
        (
            "5 the first sight of a topic counts, not a later one",
            "first_partitions=topic.first_partitions or partition_counts[topic_id]",
            "first_partitions=partition_counts[topic_id]",
        ),
        (
            "2.8 after its offsets were deleted a group begins in the topic again",
            "grown = 0 < topic.first_partitions <= partition",
            "grown = topic != GroupTopic() and topic.first_partitions <= partition",
        ),
    ),
    *group_coordinator(
        "share_group/subscriptions",
        (
            "3.3 a topic that only this member wanted does not count any more",
            "if subscribed[name] == 1}",
            "if False}",
        ),
    ),
    *group_coordinator(
        "share_group/subscribed_topics",
        (
            "3.1 a topic that was deleted and created again is another topic",
            "{name}\\0{topic.topic_id}\\0{topic.partitions}",
            "{name}\\0{topic.partitions}",
        ),
        (
            "3.1 a topic that grows is noticed",
            "{name}\\0{topic.topic_id}\\0{topic.partitions}",
            "{name}\\0{topic.topic_id}",
        ),
    ),
    *group_coordinator(
        "share_group/offsets",
        (
            "2.7 an alteration fences the gateway that holds the old state",
            "_replace(group_epoch=group.epochs.group_epoch + 1)",
            "_replace()",
        ),
        (
            "2.7 an unanswered alteration is fenced by what follows it",
            "initialized, UNINITIALIZED_START_OFFSET, 0)",
            "initialized, UNINITIALIZED_START_OFFSET, epochs.group_epoch)",
        ),
        (
            "2.7 an initialised partition stays so while it is altered",
            "some - group.topics.get(id_, GroupTopic()).initialized, UNINITIALIZED_START_OFFSET, 0",
            "some, UNINITIALIZED_START_OFFSET, 0",
        ),
        (
            "2.8 a deletion that failed begins again",
            "    if topic_id in group.deleting:",
            "    if False:",
        ),
        (
            "2.9 a group is deleted with the partitions that are being initialised",
            "known.initialized.union(known.initializing)",
            "known.initialized",
        ),
        (
            "2.9 a group that a member has joined is not deleted",
            "    _check_empty(group)\n    return Changes(topics",
            "    return Changes(topics",
        ),
    ),
]
