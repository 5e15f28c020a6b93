"""Which version of a client is live, for each family, and which ones were before it."""
