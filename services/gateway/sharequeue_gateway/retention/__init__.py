"""Retention: which topics are swept, when, and with what is known of the groups that read them.

    sweeps        every minute: the rule of each topic, the partitions that this gateway sweeps, what is reported
    idle_groups   groups that have members, but do not fetch; rows of groups that no longer exist

How far a partition is trimmed is decided below, in `record_log/removing/retaining.py` and
`record_log/retention_rule.py`.
"""
