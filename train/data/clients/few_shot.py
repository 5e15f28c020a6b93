"""A few images of each class for training: drawn once by seed, saved, and from then on read.

The split is saved like CoOp's, as ``split_fewshot/shot_16-seed_1.json`` beside the data; where that cannot be written,
under the user's cache folder.
"""

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from train.data.readers import ImageSet, Picture

FOLDER: Final = "split_fewshot"


def few_shot(data: ImageSet, shots: int, seed: int) -> tuple[list[Picture], list[Picture]]:
    """The training images in two: ``shots`` of each class in each domain (or all, where there are fewer), and the rest.

    ValueError with one sentence where the saved split does not fit the data."""
    beside, cached = (place / f"shot_{shots}-seed_{seed}.json" for place in _places(data.folder))
    saved = next((path for path in (beside, cached) if path.is_file()), None)
    chosen = _load(saved, data.train, shots) if saved is not None else _draw(data.train, shots, seed)
    if saved is None:
        text = json.dumps({"shots": shots, "seed": seed, "train": sorted(chosen)}, indent=0) + "\n"
        try:
            _write(beside, text)
        except OSError:
            _write(cached, text)
    rest = [picture for picture in data.train if picture.name not in chosen]
    return [picture for picture in data.train if picture.name in chosen], rest


def _places(folder: Path) -> tuple[Path, Path]:
    """Beside the data, and in the cache under a name that two data folders do not share."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return folder / FOLDER, cache / "fedtailor" / FOLDER / f"{folder.name}-{digest}"


def _draw(pictures: Sequence[Picture], shots: int, seed: int) -> set[str]:
    groups: dict[tuple[int, int], list[str]] = defaultdict(list)
    for picture in pictures:
        groups[picture.domain, picture.label].append(picture.name)
    rng = np.random.default_rng((seed, 5))
    return {names[i] for _, names in sorted(groups.items()) for i in rng.permutation(len(names))[:shots]}


def _load(path: Path, pictures: Sequence[Picture], shots: int) -> set[str]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["train"]
        chosen = {str(name) for name in names}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise ValueError(f"few_shot: {path} holds no list of training images; delete it to draw anew") from None
    gone = chosen - {picture.name for picture in pictures}
    if gone:
        raise ValueError(
            f"few_shot: {path} names {min(gone)}, which is not among the training images; bring it back, or delete the"
            " split to draw anew"
        )
    counts = Counter((picture.domain, picture.label) for picture in pictures if picture.name in chosen)
    if not counts or max(counts.values()) > shots:
        raise ValueError(f"few_shot: {path} is not {shots} images a class; delete it to draw anew")
    return chosen


def _write(path: Path, text: str) -> None:
    """Whole or not at all: several processes may draw the same split at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
