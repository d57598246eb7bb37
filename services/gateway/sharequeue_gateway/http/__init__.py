"""The calls of a gateway: one file per subject with a class of handlers, all served by `app.py`.

Decides: the form of requests and answers: the partitions that a request names, the faults that are data inside an
answer, the end of a page. A handler checks its request, calls the rooms below and makes the answer. Only `gateway`
imports this room.

    clients  ──▶ produce_api, fetch_api, records_api                 ──▶ producing, delivery, routing
             ──▶ topics_api, offsets_api, members_api,               ──▶ the group coordinator, the record log
                 group_admin_api, redrive_api, in_flight_api
    services ──▶ internal/                                           ──▶ leader, delivery
    jobs     ──▶ jobs/                                               ──▶ the stored data
    browsers ──▶ pages/                                              ──▶ files of this package and of Swagger UI

`named_partitions`, `paths`, `page_tokens` and `media_types` read parts of requests; `fetch_answer` and `arrow_answer`
write answers; `readiness` answers `/readyz`.
"""
