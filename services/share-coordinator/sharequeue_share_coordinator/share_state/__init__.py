"""The state of one share-partition, and the rules that change it. Pure: no IO, no clock, no logging.

A request decides an answer and perhaps a row (`shard.py`). Nothing changes until the caller has stored the row; then
`replay` (`rows.py`) applies it. Loading replays the stored rows,
so a new owner serves the same state as the one before.

    request ─decide─▶ answer, row ─commit─▶ PostgreSQL ─replay─▶ state in memory, and the answer goes out

    rows of one share-partition, by sequence number:    S1  U2  U3 … U501  S502  P503  U504  T505  S506
      S  snapshot: the whole state. Every row before the last snapshot is pruned.
      U  update: what one write changed. After 500 updates a write stores a snapshot instead.
      P  part: further batches of a snapshot of more than 1,000, stored in the same statement.
      T  tombstone: the state was deleted. It is pruned too; Initialize begins again with a snapshot.

`shard.py` has the decisions, `batch_list.py` lays a write over a state, `notes.py` says what becomes of notes and
texts, `rows.py` has the rows. `coordinator/` calls the decisions, `store.py` replays rows, `http/` checks the form of
requests.
Source: Kafka ShareCoordinatorShard and PersisterStateBatchCombiner.
"""
