"""The groups whose shards this instance owns: it loads them, has them decide, persists what they decide, and answers.

The owner of a shard is the only writer of its groups, so a group stays in memory once it is loaded. Each save names the
fence and the revision that the decision was made on. After a failure of the database it is unknown what is stored: the
group is dropped, and loaded again by its next use.

    load ─▶ OwnedGroup ─event─▶ ShareGroup decides ─▶ save, one transaction ─▶ apply ─▶ answer
               ▲                                            │ unknown, outdated
               └────────────── load again ◀──── drop ◀──────┘

    two locks of a group    `lock`: one initialisation or administration at a time, with its calls of other services
                            `deciding`: one event at a time, from the decision to `apply`; taken last

`registry.py` is this loop. Above it: `members.py` (heartbeats), `member_sessions.py` (their timeouts), `initializer.py`
(two stages), `configs.py`, `admin.py` (delete, reset, forget a topic), `empty_groups.py` (deletes those that nobody
uses). Called by `http/`.
"""
