"""The one loop that commits state, and the states in memory."""
