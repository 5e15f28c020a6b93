"""Finished runs beside each other: ``python -m train.compare RUN…``."""
