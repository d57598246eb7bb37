"""Leadership that comes and goes: a share-partition is loaded, and handed over to another gateway.

    load_registry ──▶ loader ──▶ paged_state      the stored state, page by page
          │              └─────▶ start_offsets    where a group without a state begins
          └── hand_over: yields what another gateway leads from now on

`load_registry` decides who loads: one load of a share-partition at a time, and all requests for it wait for that one.
It unloads, and keeps the locks that may still be held. `loader` decides the order, which fences earlier leaders: first
the state under a new leader epoch, then the locks, then the start.

`leader` calls this room, and `http` for a hand-over. It knows the led share-partitions and the persister, not `leader`.
"""
