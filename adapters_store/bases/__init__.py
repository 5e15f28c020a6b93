"""The frozen bases: found, named, exported for serving, and what fits over them."""
