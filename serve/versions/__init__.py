"""Which version of a client answers: followed in the store, verified, copied, loaded, given up."""
