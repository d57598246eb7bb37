"""The calls of a gateway: one file per subject with a class of handlers, all served by `app.py`. The handler of a call
is the method that is named as its row: `fetch_records` of `apis.FETCH_RECORDS`.

Decides: which partitions a request names, which faults are data inside an answer, and where a page ends. A handler
checks its request, calls the rooms below and makes the answer. Only `gateway` imports this room.

    clients  ──▶ produce_api, fetch_api, records_api                 ──▶ producing, delivery, routing
             ──▶ stream_api, settle_api, transactions_api            ──▶ routing, the record log
             ──▶ topics_api, groups/                                 ──▶ the group coordinator, the record log
             ──▶ single_records/                                     ──▶ leader, routing, the record log
    services ──▶ internal/                                           ──▶ leader, delivery
    jobs     ──▶ jobs/                                               ──▶ the stored data
    browsers ──▶ pages/                                              ──▶ files of this package and of Swagger UI

`named_partitions` reads the partitions of requests, `answers/` has the forms of answers, `readiness` is `/readyz`.
"""
