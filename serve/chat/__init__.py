"""A conversation with a client's version: template, soft tokens, the engine, the answer."""
