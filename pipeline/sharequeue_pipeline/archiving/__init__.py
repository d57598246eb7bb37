"""An archive of a topic: Parquet files by partition and date, and a manifest that names them.

    DIRECTORY/
      topic=T/partition=P/date=D/<first>-<last>.parquet    archived records
      _manifests/T.json                                    the manifest: offsets, files, counts, checksums
      _staging/T/…                                         files that tasks are writing

The manifest decides: a Parquet file that it does not name comes from a run that was killed, and the next run removes
it. So a segment goes through four steps: a task writes it to staging and reads it back, the driver moves its files into
place, and the driver replaces the manifest. A crash before the last step loses the segments of one wave.

A Delta table has no manifest: its commits name the files, and say how far each partition is archived.

Only the jobs `archive` and `compact` use this folder. For Parquet `segments` is the work of tasks, `manifest` the
directory, `checksum` the comparison; for Delta `table_files` is the work of tasks, `delta_table` the table.
`latest_rows` is the work of tasks for a table of the last record of each key.
"""
