"""An archive of a topic in Parquet: `topic=T/partition=P/date=D/<first>-<last>.parquet`, and a manifest of what is in it.

The manifest is the truth: what it does not name is of a run that did not end, and is removed by the next one.
"""
