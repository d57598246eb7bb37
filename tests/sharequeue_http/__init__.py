"""The import root `sharequeue_http` alone: its server, its client, and clients that are hostile to its server."""
