"""Calls for the jobs of the pipeline: reports, audits and compaction. Each handler reads its store and nothing else."""
