"""Consuming: what a member of a share group fetches, holds and settles.

`sharequeue.client` exports what programs use of this room. A transaction settles what a consumer holds, so it uses
`deliveries` and `outcomes`; `sync` passes on the calls of a program; `sharequeue topics read` shows records as
`deliveries` reads them. The pipeline sends the acknowledgements of a Spark query with `acknowledging`.

    share_consumer    the methods of a program, and the three modes of acknowledging
         │
      polling ──────▶ membership        fetches until records are ready; which partitions this member has
         │
      settling, renewing                what is held: settled, or its locks kept alive
         │
      fetching                          one member's fetches; `following` above this room: which gateway gets them
         │
      acknowledging                     calls, and the result of each acknowledgement
         │
      deliveries ───▶ outcomes          the life of a delivery, in the picture of `sharequeue.client`

`record_stream` stands beside `share_consumer`: its records come on one connection, so it needs neither polling nor
fetching. `dealing` decides how many records a consumer asks for.
"""
