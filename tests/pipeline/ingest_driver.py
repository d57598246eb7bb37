"""A driver program for tests to kill: the job `ingest` in a session on a cluster whose workers lack the package.

Usage: ingest_driver.py MASTER ARCHIVE ARGUMENTS…. ARCHIVE has the packages, and ARGUMENTS are those of the job.
"""

import sys

from sharequeue_pipeline.jobs import ingest

from tests.pipeline.driver import session_on

if __name__ == "__main__":
    master, archive, *arguments = sys.argv[1:]
    session = session_on(master, archive)
    ingest.command.main(arguments, standalone_mode=False)  # it uses the running session
    session.stop()
