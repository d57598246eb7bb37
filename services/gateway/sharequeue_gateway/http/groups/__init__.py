"""The calls about share groups: members, settings, offsets, records in flight, dead letters.

    members_api       join, heartbeat, leave             ──▶ the group coordinator
    group_work        what groups have to do now         ──▶ all gateways, and the log's readers
    offsets_api       settings, offsets and lag          ──▶ the group coordinator, and log ends from the record log
    group_admin_api   list, describe, reset, delete      ──▶ the group coordinator
    in_flight_api     records in flight, page by page    ──▶ all leaders
    look_up_api       one record, by offset or key       ──▶ in_flight_api, dead_letters_api, the record log
    at_leader_api     the window, one record by hand     ──▶ the leader of the share-partition
    redrive_api       dead letters back to their topics  ┐
    dead_letters_api  lists and drops dead letters       ┴▶ dead_letters ──▶ the record log

The group coordinator decides about groups. These handlers check what only a gateway knows: the offsets of the log, and
the records that its leaders hold. Only `app` imports the room.
"""
