"""How right an answer is."""

import re


def _normal(text: str) -> str:
    """Lower case, single spaces, no closing full stop."""
    return " ".join(text.lower().split()).rstrip(" .")


def read_box(text: str) -> tuple[int, int, int, int] | None:
    """The box that a text like "box 3 5 20 31" names, or None where it names none."""
    found = re.fullmatch(r"box (\d+) (\d+) (\d+) (\d+)", _normal(text))
    if found is None:
        return None
    x0, y0, x1, y1 = (int(edge) for edge in found.groups())
    return (x0, y0, x1, y1) if x0 <= x1 and y0 <= y1 else None


def overlap(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> float:
    """Intersection over union of two boxes (x0, y0, x1, y1), both ends inclusive."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + 1
    height = min(a[3], b[3]) - max(a[1], b[1]) + 1
    shared = max(0, width) * max(0, height)
    area_a, area_b = ((c[2] - c[0] + 1) * (c[3] - c[1] + 1) for c in (a, b))
    return shared / (area_a + area_b - shared)


def score(task: str, answer: str, truth: str) -> float:
    """1.0 or 0.0: equal up to case and white space; for `ground`, boxes that overlap by at least half (IoU ≥ 0.5)."""
    if task != "ground":
        return float(_normal(answer) == _normal(truth))
    named, true = read_box(answer), read_box(truth)
    if true is None:
        raise ValueError(f"truth of a ground question: found {truth!r}, allowed is a text like 'box 3 5 20 31'")
    return float(named is not None and overlap(named, true) >= 0.5)
