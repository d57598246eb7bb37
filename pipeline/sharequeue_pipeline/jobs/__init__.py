"""The jobs: one module each, with a click command named `command`, which `sharequeue.cli.pipeline` finds by name.

    ingest    files to a topic                    compact   the last record of each key
    archive   a topic to Parquet, then trimmed    audit     stored state and log against the services' answers

A job uses the source and the sink where they suffice, and the HTTP API otherwise (`operator_client`). `command_line`
has the options, the session and the exit codes of all jobs. The rules of an audit are pure: `state_check` and
`log_check`. Jobs do not import one another. spark-submit runs their files directly; then the jobs folder is first in
`sys.path`, so no file here may have the name of a library.
"""
