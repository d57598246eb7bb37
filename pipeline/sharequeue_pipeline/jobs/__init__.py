"""The jobs: one module each, with a click command named `command`, which `sharequeue.cli.pipeline` finds by name.

    ingest    files to a topic
    archive   a topic to a Delta table, then trimmed
    compact   the last record of each key

A job uses the source and the sink where they suffice, and the HTTP API otherwise (`operator_client`). `command_line`
has the options, the session and the exit codes of all jobs. Jobs do not import one another. spark-submit runs their
files directly; then the jobs folder is first in `sys.path`, so no file here may have the name of a library.
"""
