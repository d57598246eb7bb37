"""What the parts of sharequeue share and what users import: the protocol, the wire, the client and the command line."""

__version__ = "0.1.0"
