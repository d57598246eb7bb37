"""Checks of the OpenAPI document by the tools of others, and its comparison with the document that clients have."""
