"""Generated clients: how each is generated and compiled, and one contract suite that all of them pass."""
