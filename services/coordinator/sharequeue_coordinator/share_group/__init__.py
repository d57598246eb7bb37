"""One share group, decided: members, epochs, assignments, and which share-partitions are initialised. Pure.

No IO, no clock, no logging. Events are methods or functions; they take the time, change nothing and return `Changes`:

    decision = group.heartbeat(request, topics, settings, now_ms)      decide
    persist(decision)                                                  in one transaction, if it is durable
    group.apply(decision, now_ms)                                      only this changes the group
    answer(decision.answer)

    the group      absent ─first heartbeat or initialisation─▶ Empty ◀─members─▶ Stable      Empty ─delete─▶ absent
                                                                                             (its epochs stay)
    an initialisation, in two stages
      heartbeat    persist `initializing` ─▶ answer ─▶ ask the share coordinator ─┬─ done ────▶ persist `initialized`
                                                                                  ├─ refused ─▶ persist: undone
                                                                                  └─ unknown ─▶ a later heartbeat asks

A group has one event at a time, and one request to the share coordinator at a time: a second initialisation would undo
what was acknowledged since the first. Called by `groups/`. Source: KIP-932.
"""
