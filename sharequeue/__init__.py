"""The shared part of the services, and the package that users import.

    cli ──▶ client ──▶ http ──▶ protocol         users: `sharequeue.client`, `.sync`, the command `sharequeue`
     │                  ▲
     └──▶ stack         └── service, ownership   the three services: `services/*`, each a package of its own

Everything imports `protocol` (messages, calls, errors, settings; pure) and the small modules beside it: `clock`, `log`,
`background`, `slices`. Users need only `client` and `cli`, with three libraries. `service`, `ownership` and `stack`
need the extra [server]. Nothing here imports a service: `stack` starts them as processes, or as one.
"""

__version__ = "0.1.0"
