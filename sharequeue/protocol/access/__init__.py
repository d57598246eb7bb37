"""Decides who may do what: keys of callers, rights of principals, and what each call needs.

    keys      the form of a key: how one is made, read, and compared with what is stored
    rights    the rights of all principals, and whether one of them covers a resource
    columns   what each call needs and shows: `access` of its row in `sharequeue.protocol.apis`

A gateway asks these at its HTTP edge (`sharequeue_gateway.http.access`). The group coordinator stores keys and rights.
No other module names a right. No IO, no clock, no logging. Source: Kafka's AclAuthorizer, allow rules alone.
"""
