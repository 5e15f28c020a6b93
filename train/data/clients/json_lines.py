"""Files with an object of JSON on every line, as people save them: with a byte order mark, CRLF, blank lines.

What is wrong is collected rather than raised, so that whoever has to mend a file hears of everything at once.
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

OTHER_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_json_lines(path: Path, faults: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line that is not blank. A line that holds none adds a sentence to ``faults``."""
    data = path.read_bytes()
    if data.startswith(OTHER_MARKS):
        faults.append(f"{path} is UTF-16: save it as UTF-8")
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        faults.append(f"{path}, line {at} is not UTF-8, but Latin-1 perhaps: save it as UTF-8")
        return
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would split at U+2028, too, which JSON may hold
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            faults.append(f"{path}, line {number} is not JSON ({getattr(error, 'msg', 'nested too deeply')})")
            continue
        if isinstance(found, dict):
            yield number, found
        else:
            faults.append(f"{path}, line {number} is no object {{…}} of JSON")
