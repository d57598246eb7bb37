"""The report: what it says, and how it looks.

    reading       Spark adds up the gateway's counters by topic, group and time, and asks for lags
    reasons       the dead letters by reason, with samples
    figures       what a report says, as structs: `--json` is these structs
    findings      what in these figures needs attention
    markdown      the figures as Markdown
    page          the figures as one HTML file: `overview`, `dead_letters`, `groups`, of `charts` and `elements`
    texts         numbers, durations, times and foreign text as people read them

Everything but `reading` and `reasons` is pure. The figures are bounded: the topics and groups with the most records are
named, and the others are added up. So a page of 10,000 topics is as large as one of 50.
"""
