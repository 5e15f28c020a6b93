"""JSON that may come from anybody: no depth, number or text in it that could hurt who reads it."""

import math
from typing import Any

from pydantic_core import from_json

from adapters_store.limits import INTEGER, JSON_DEPTH


def parse_json(data: bytes) -> Any:
    """The document; ValueError with half a sentence where it is none, too deep, or has a number out of bounds."""
    try:
        document = from_json(data, allow_inf_nan=False)  # refuses 200 levels, NaN, and half a surrogate pair
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    check_json(document)
    return document


def check_json(document: object, depth: int = 0) -> None:
    """ValueError where a document is deeper than 32 levels, or holds a number that is not finite or beyond 64 bits."""
    if depth > JSON_DEPTH:
        raise ValueError(f"it is nested deeper than {JSON_DEPTH} levels")
    if isinstance(document, float) and not math.isfinite(document):
        raise ValueError("it holds a number that is not finite")
    if isinstance(document, int) and not -INTEGER <= document < INTEGER:
        raise ValueError("it holds an integer of more than 64 bits")
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            check_json(item, depth + 1)
