"""The data pipeline on Spark: the source and sink `sharequeue`, and the jobs made of them."""
