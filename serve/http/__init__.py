"""What every request meets before it is answered: limits, keys, its body, its turn; and how it is refused."""
