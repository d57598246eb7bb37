"""Writing: the writers that Spark calls, and the requests they send."""
