"""Rounds: whom they take, what goes to whom, a client's local training, what is kept after each."""
