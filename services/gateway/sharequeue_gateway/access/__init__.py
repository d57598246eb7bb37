"""The keys and rights that this gateway knows, all of them in memory.

    change feed ──▶ another revision ──▶ AccessBook.hear ──▶ describeAccess ──▶ listeners
    a call with a key ──▶ AccessBook.holder_of           every ten minutes ──▶ noteKeyUses

Any room above may ask the book; nothing in it waits for another service within a call of a client. `http.access`
decides about calls.
"""
