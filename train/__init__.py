"""Federated rounds over a frozen base, ending in published adapters."""

import adapters_store  # noqa: F401  (its torchvision hook must be armed before open_clip is imported)
