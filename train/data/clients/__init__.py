"""How each kind of data becomes clients."""
