"""Decides who calls, and what the caller may do: asked at the edge, from the columns of the table of calls.

    guard     the key of a request, and the age of what the gateway knows
    refused   the needs of its call, and names that fail alone, beside others that are served
    owners    which transactions are a caller's
    watch     fetches and streams under way, while keys and rights change
    shown     lists of an answer without the names that the caller may not see

No other room names a right. A handler that serves the rest of a call finds refused names in `Call.refused`.
"""
