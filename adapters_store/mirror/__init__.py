"""A copy of the store behind a URL."""
