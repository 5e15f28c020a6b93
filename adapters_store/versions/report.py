"""A version's report: what the run that made it found, and the moment it was published, which orders versions."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from adapters_store.disk.bounded_json import parse_json
from adapters_store.errors import StoreError, shown
from adapters_store.limits import REPORT_BYTES

REPORT = "report.json"
AHEAD = timedelta(days=1)  # how far a clock may be ahead; further ahead, no time of publishing is believed


def parse_report(data: bytes) -> dict[str, Any]:
    """Raises StoreError where these bytes, from here or from a mirror, are no report."""
    try:
        report = parse_json(data)
    except ValueError as error:
        raise StoreError(f"{REPORT} is damaged ({error})") from error
    if not isinstance(report, dict):
        raise StoreError(f"{REPORT} is damaged (it is no object but {shown(report)})")
    return report


def report_json(report: Mapping[str, Any]) -> bytes:
    """A report as it is written; StoreError where it would not be read again."""
    try:
        written = json.dumps(report, indent=1, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"the report is no JSON ({error})") from error
    if len(written) > REPORT_BYTES:
        raise StoreError(f"the report has {len(written)} bytes: at most {REPORT_BYTES} are allowed")
    parse_report(written)
    return written


def check_published(report: Mapping[str, Any]) -> str:
    """When the version was published; StoreError where that is not a moment as ``after_all`` writes them, or one of a
    clock that is more than a day ahead of this one.
    """
    moment = report.get("published")
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else None
    except ValueError:
        found = None
    if found is None or _text(found) != moment or found.utcoffset() != timedelta(0):
        raise StoreError(
            f"{REPORT}: published is {shown(moment)} where a moment like 2026-01-31T12:00:00.000000+00:00 is needed"
        )
    if found > datetime.now(UTC) + AHEAD:
        raise StoreError(f"{REPORT}: published is {moment}, more than a day from now")
    return _text(found)


def after_all(moments: list[str]) -> str:
    """Now, or just after the newest of these where the clock went back, as ISO 8601 with microseconds.

    A damaged moment is none: neither a version's order nor the next one's can be had by writing year 9999 somewhere.
    """
    newest = max((moment for moment in moments if moment), default="")
    now = _text(datetime.now(UTC))
    return now if newest < now else _text(datetime.fromisoformat(newest) + timedelta(microseconds=1))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")
