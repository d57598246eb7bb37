"""The calls for the jobs of the pipeline. No handler leads a share-partition or touches a share session.

activity_api      the counts behind reports
compaction_api    lists the batches of a partition, and removes records from them
"""
