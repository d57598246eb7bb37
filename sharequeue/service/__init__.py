"""The parts that each of the three services needs to run: a server, signals, settings, health, metrics.

Decides: when a process is ready, when it ends and with which exit code. Holds no rule of the queue.
Callers: `__main__` and the composition of each service.

    start ── settings.load ── prepare() ── listen ── loops ──▶ SIGTERM ── Service.stop ── drain ── Service.close ── 0
                                                       └─▶ a loop dies: log it, end the process with 1

    service.py           run: uvicorn and the loops of a service, or of several, as siblings
    operations.py        /livez, /readyz and /metrics
    in_process.py        calls between services of one process
    settings.py          the environment, read once
    readiness.py         the checks of /readyz
    kafka_health.py      does Kafka answer
    series.py            metrics with many series
    addresses.py         where to listen, and the URL that others use
    allocator.py         large blocks of memory go back to the system
    postgres_faults.py   what a failure of PostgreSQL means
    postgres_health.py   does it answer, does it write
    time_line.py         is it the one that the service remembers
"""
