"""Everything that `sharequeue up` needs: the stores, the migrations, the services, and their order.

Decides: which user runs the stores, where their data lies, which data is refused, and in which order the parts start
and stop. Callers: the command line (`up`, `migrate`), the tests, the benchmarks. No service imports this room.

    stack.py          the whole: stores, then services, in one process or each in its own; stops in the opposite order
      postgres.py     PostgreSQL as a child process      redis.py   Valkey as a child process
        process.py        what both have in common
        system_user.py    run by root: another user, and folders which that user can enter
    migrate.py        the three chains of database migrations; `up` runs it as a program, if chains.py names other heads
    checks.py         stores that the user names by URL: refused in one sentence before anything starts
"""
