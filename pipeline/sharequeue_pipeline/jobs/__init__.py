"""The jobs of the pipeline, a module each: made of the source and sink, and of the HTTP API where those do not reach."""
