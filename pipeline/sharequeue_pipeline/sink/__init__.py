"""Writing with `format("sharequeue")`: rows become records, records become produce requests.

`rows` checks the columns, encodes one record per row as JSON, and cuts the records into requests. Texts and bytes take
a shorter way: `columns` cuts them as they are. `writing` sends the requests of a task one after the other, and makes
the next one meanwhile. `data_source` makes a `batch_writer` or a `stream_writer`, and Spark calls it.

    key = write id : partition of the task : number of the request
          query:batch for a stream, `writeId` or a random id for a batch

A repeated task appends nothing twice, also if its rows come in another order: `attempts` says how, and `digests` says
when two records are equal. If the rows themselves differ, the records of both attempts are there: never fewer, perhaps
more. With `transactional=true` a write is one transaction, and each record is there once:
`transactions` says how.
"""
