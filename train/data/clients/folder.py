"""A federation from a folder of one's own: one sub-folder a client, its examples as lines of JSON.

    <path>/<client>/train.jsonl, test.jsonl and, if wanted, val.jsonl, a line an example:
    {"image": "scan-1.png", "question": "is there a fracture?", "answer": "no"}      to answer questions
    {"image": "scan-1.png", "class": "fracture"}                                     to classify

Image paths are relative to the client's folder and stay in it; what lies in none of these is looked for in the folder
`data.shared`, if one is named. ``task`` may name what the question is about; results are shown by it. ``"window":
[centre, width]`` says what of a picture of greys is seen (adapters_store/pictures/reader.py). Other keys are not read.

A folder's name becomes the client's id in lower case, without accents, with a dash for all that an id cannot hold:
"St Mary Ward" is st-mary-ward.
"""

import hashlib
import logging
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapters_store.paths import GLOBAL, check_client
from train.data.clients.json_lines import read_json_lines
from train.data.examples import SPLITS, ClientData, Example

log = logging.getLogger(__name__)

DARK: Final = 16  # of 255: what 12 bits are of 16
SHOWN: Final = 20  # faults that are told one by one
LARGEST: Final = sys.float_info.max  # of a window's numbers, which JSON may write as integers of any size
KINDS: Final = (("image", "question", "answer"), ("image", "class"))
MORE: Final = ("task", "window")


@dataclass(frozen=True)
class Line:
    """A line of a client's that says what it must, with its image's file."""

    where: str
    image: Path
    content: dict[str, Any]

    @property
    def window(self) -> tuple[float, float] | None:
        """What of the image is seen."""
        found = self.content.get("window")
        return None if found is None else (float(found[0]), float(found[1]))


def build_folder(path: Path, shared: Path | None = None) -> list[ClientData]:
    """The clients found under ``path``, sorted by id. ValueError where something is amiss, with all that is."""
    if not path.is_dir():
        raise ValueError(f"data.path: {path} is not a folder; it must hold one folder a client, with train.jsonl in it")
    if shared is not None and not shared.is_dir():
        raise ValueError(f"data.shared: {shared} is not a folder; it must hold images that clients share")
    clients: dict[str, Path] = {}
    faults: list[str] = []
    for folder in _folders(path, shared):
        client = client_id(folder.name, faults)
        if client in clients:
            faults.append(f"{clients[client]} and {folder} would both be client {client!r}: rename one")
        clients[client] = folder
    found = [_client(client, clients[client], shared, faults) for client in sorted(clients)]
    if len({bool(one.class_names) for one in found if one.train}) > 1:
        faults.append(f"in {path} some clients have classes and others questions; all must be of one kind")
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        raise ValueError(f"data.path: {'; '.join(faults[:SHOWN])}{more}")
    return found


def client_id(name: str, faults: list[str]) -> str:
    """The id of the client whose folder has that name; a fault where there can be none."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    client = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:63]
    if client == GLOBAL:
        faults.append(f"folder {name!r} cannot be a client's; 'global' is the name of the shared model")
    else:
        try:
            check_client(client)
        except ValueError as error:
            faults.append(f"folder {name!r}: {error}")
    return client


def _folders(path: Path, shared: Path | None) -> list[Path]:
    """Those of clients. One that is none is named, since it may be one whose file has another name."""
    own = [
        each for each in sorted(path.iterdir()) if each.is_dir() and each != shared and not each.name.startswith(".")
    ]
    folders = [each for each in own if (each / "train.jsonl").is_file()]
    if not folders:
        raise ValueError(f"data.path: no folder in {path} holds a train.jsonl; one folder a client is needed")
    for each in own:
        if each not in folders:
            log.warning("%s holds no train.jsonl and is no client", each)
    return folders


def _client(client: str, folder: Path, shared: Path | None, faults: list[str]) -> ClientData:
    unread: set[str] = set()
    lines = {split: _lines(folder, split, shared, unread, faults) for split in SPLITS}
    if unread:
        log.warning("%s: not read in its lines: %s", client, ", ".join(sorted(unread)))
    every = [line for split in SPLITS for line in lines[split]]
    names = tuple(sorted({line.content["class"] for line in every if "class" in line.content}))
    if names and not all("class" in line.content for line in every):
        faults.append(f"{folder} mixes classes and questions; all examples must be of one kind")
        return ClientData(client, (), (), (), (), "")
    train, val, test = (
        tuple(_example(client, f"{client}-{split}-{i}", line, names) for i, line in enumerate(lines[split]))
        for split in SPLITS
    )
    _check_apart(lines, faults)
    _look_at((*train, *val, *test), every, faults)
    return ClientData(client, train, val, test, names, note=f"{len(train)} examples of {folder}")


def _lines(folder: Path, split: str, shared: Path | None, unread: set[str], faults: list[str]) -> list[Line]:
    """The lines of a split that can be examples; of the others, what is wrong."""
    path, before = folder / f"{split}.jsonl", len(faults)
    if not path.is_file():
        if split != "val":
            faults.append(f"{path} is missing; every client needs train.jsonl and test.jsonl")
        return []
    lines = []
    for number, content in read_json_lines(path, faults):
        where = f"{path}, line {number}"
        kind = next((kind for kind in KINDS if content.keys() >= set(kind)), None)
        if kind is None or not all(isinstance(content[key], str) for key in kind):
            faults.append(f"{where} needs the texts image, question and answer, or image and class")
        elif not isinstance(content.get("task", ""), str):
            faults.append(f"{where} has task {content['task']!r}; it is a text")
        elif not _is_window(content.get("window", [0, 1])):
            faults.append(f"{where} has window {content['window']!r}; it is [centre, width], two numbers")
        elif (image := _image(folder, content["image"], shared)) is None:
            allowed = folder if shared is None else f"{folder} and {shared}"
            faults.append(f"{where} names {content['image']!r}: only files in {allowed} are read")
        else:
            unread |= content.keys() - {*kind, *MORE}
            lines.append(Line(where, image, {key: content[key] for key in (*kind, *MORE) if key in content}))
    if split != "val" and not lines and len(faults) == before:
        faults.append(f"{path} is empty; at least one example is needed")
    return lines


def _image(folder: Path, name: str, shared: Path | None) -> Path | None:
    """The file in the client's own folder, else in the shared one; None where it would be in neither."""
    roots = [root.resolve() for root in (folder, shared) if root is not None]
    for start in roots:
        file = (start / name).resolve()
        if file.exists() and any(file.is_relative_to(root) for root in roots):
            return file
    inside = (roots[0] / name).resolve()
    return inside if inside.is_relative_to(roots[0]) else None  # a file that is missing is told as such


def _is_window(found: Any) -> bool:
    numbers = isinstance(found, list) and all(type(number) in (int, float) for number in found)
    return numbers and len(found) == 2 and all(abs(number) <= LARGEST for number in found) and found[1] > 0


def _example(client: str, uid: str, line: Line, names: tuple[str, ...]) -> Example:
    said = line.content
    if names:
        return Example(line.image, "", said["class"], "classify", names.index(said["class"]), uid, client, line.window)
    task = said.get("task", "question")
    return Example(line.image, said["question"], said["answer"], task, -1, uid, client, line.window)


def _check_apart(lines: dict[str, list[Line]], faults: list[str]) -> None:
    """A picture that is tested on must not have been seen before, under whatever name."""
    seen = {_content(line.image): line for split in ("train", "val") for line in lines[split] if line.image.is_file()}
    for line in lines["test"]:
        if line.image.is_file() and (same := seen.get(_content(line.image))) is not None:
            faults.append(f"{line.where} has the same picture as {same.where}; keep them apart")


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _look_at(examples: Sequence[Example], lines: Sequence[Line], faults: list[str]) -> None:
    """Reads every picture: a broken one is refused now rather than in the middle of a run, a black one is told."""
    dark = []
    for example, line in zip(examples, lines, strict=True):
        try:
            if example.image.max() <= DARK:
                dark.append(line.image)
        except ValueError as error:
            faults.append(f"{line.where}: {str(error).removeprefix('data.path: ')}")
    if dark:  # twelve bits in a file of sixteen, as many X-rays have them, are so without a window
        log.warning(
            '%s: nearly black are %d pictures, %s first; more than 8 bits may need a "window" in the line',
            *(examples[0].style, len(dark), dark[0]),
        )
