"""Topics as Delta tables: an archive with every record of a topic.

    DIRECTORY/
      date=D/<partition>-<first offset>-….parquet    files that tasks have written
      _delta_log/                                    commits: they name the files, and say how far each partition is

A file that no commit names comes from a run that was killed, and no reader sees it. So a crash before a commit loses
the work that this commit would have added, and VACUUM removes its files.

Only the job `archive` uses this folder. `delta_table` is the table, which the driver opens and commits to.
`table_files` is the work of tasks.
"""
