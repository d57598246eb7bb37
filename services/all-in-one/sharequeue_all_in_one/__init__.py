"""The three services in one process, as `sharequeue up` runs them. The only package that imports all three."""
