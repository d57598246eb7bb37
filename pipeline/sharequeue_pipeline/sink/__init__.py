"""Writing with `format("sharequeue")`: rows become records, records become produce requests.

`rows` checks the columns and encodes one record per row. `sorting` puts a task's records in order. `writers` cuts the
records into requests bounded in bytes and records. Texts and bytes take a shorter way: `columns` sorts and cuts them as
they are. Both keep their sorted runs in `run_files`. `senders` sends each request with an idempotency key, some of them
at once. `data_source` makes the writers, and Spark calls them.

    key = write id : partition of the task : number of the request : hash of its body
          query:batch for a stream, `writeId` or a random id for a batch

A repeated task or batch sends the same requests under the same keys, so the gateway appends nothing twice. Tasks sort
their rows first, because a shuffle may change their order. If the rows themselves differ, the request has another hash
and is appended: never fewer records, perhaps more. With `transactional=true` a write is one transaction, and each
record is there once: `transactions` says how.
"""
