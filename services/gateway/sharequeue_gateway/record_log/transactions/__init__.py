"""Transactions over partitions: begin, end and sweep, and what they settle. The row of a transaction decides about it.

    begin ──▶ open ──▶ lock its row ──▶ lock its partitions ──▶ markers, outcome, settlements ──▶ committed or aborted
                       └───────────────── one transaction of PostgreSQL ────────────────────┘

`transactions` begins, describes, lists and sweeps; `ending` is the one way to an end. `transaction_rules` says what a
call is answered by the state of its transaction, and `transaction_sizes` bounds its bytes; both are pure. `settlements`
has the rows of a commit that leaders apply.

The SQL: `begin_store` of begins and of transactional ids, `transaction_store` of one transaction,
`open_store` of what is open and the sweep, `list_store` of lists.

Each half of a transaction has its place:

    http/transactions_api, http/settle_api       the calls
    routing/settling, routing/settled_commits    a commit that settles records: over all leaders, then through here
    here                                         the log's half: the row, the markers, the settlements to apply
    leader/pending_transactions                  asks here what became of a transaction, and applies it to a state
    share_partition/pending                      the records' half: what pending records refuse, and become; pure

`routing`, `http` and `producing` call `transactions`. An append with a transaction id comes through here, and `appends`
says what it does besides. A plain append knows nothing of this room. The room knows the cache, and no dead letter.
"""
