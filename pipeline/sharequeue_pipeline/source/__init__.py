"""Reading: the readers that Spark calls, and what tasks read."""
