"""The state of one share-partition, and the rules that change it. Pure: no IO, no clock, no logging.

A request decides an answer and perhaps a row (`shard.py`). Nothing changes until the caller has stored the row; then
`replay` (`rows.py`) applies it. Loading replays the stored rows,
so a new owner serves the same state as the one before.

    request ─decide─▶ answer, row ─commit─▶ PostgreSQL ─replay─▶ state in memory, and the answer goes out

    rows of one share-partition, by sequence number:    S1  U2  U3 … U501  S502  U503  T504  S505
      S  snapshot: the whole state. Every row before the last snapshot is pruned.
      U  update: what one write changed. After 500 updates a write stores a snapshot instead.
      L  large snapshot (more than 1,000 batches): names parts that were stored before it, says what has changed since
         these were stored, and names the last row that it holds. Updates behind that row may stand before it.
      T  tombstone: the state was deleted. It is pruned too; Initialize begins again with a snapshot.

`coordinator/` calls the decisions, `store.py` replays rows, `http/` checks the form of requests.
Source: Kafka ShareCoordinatorShard and PersisterStateBatchCombiner.
"""
