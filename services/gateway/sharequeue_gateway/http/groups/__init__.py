"""The calls about share groups: members, settings, offsets.

    members_api      join, heartbeat, leave         ──▶ the group coordinator
    group_work       what groups have to do now     ──▶ all gateways, and the log's readers
    offsets_api      settings, offsets and lag      ──▶ the group coordinator, and log ends from the record log
    group_admin_api  list, describe, reset, delete  ──▶ the group coordinator

The group coordinator decides about groups. These handlers check what only a gateway knows: the offsets of the log.
Only `app` imports the room.
"""
