"""The forms of answers, for all handlers: records as JSON, as Arrow, as events; pages; the media types of a request.

    records of the log ──▶ fetch_answer  ──▶ one JSON body, joined from stored bytes
                       ──▶ event_stream  ──▶ Server-Sent Events, each with a body of fetch_answer
                       ──▶ arrow_answer  ──▶ an Arrow stream of columns

`media_types` weighs the header Accept. `page_tokens` encodes where a page ended. No file here knows a handler, a leader
or a store, and only `arrow_answer` parses a record.
"""
