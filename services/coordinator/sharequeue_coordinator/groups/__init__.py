"""The groups that this instance owns: their machines, and everything that these need."""
