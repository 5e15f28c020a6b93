"""DomainNet (Peng et al. 2019) and Office-Caltech10 (Gong et al. 2012): folders <domain>/<class>/<image>.

DomainNet's official split is used where a domain has its lists, <domain>_train.txt and <domain>_test.txt beside the
folder of the domain, a line "clipart/zebra/clipart_344_000001.jpg 344" an image. Otherwise a share of each class is
drawn for training, by seed: whether an image is among it hangs on no other class.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from train.data.readers.pictures import ImageSet, Picture, class_folders, find_folder, spoken

DOMAINS: Final = {
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "office_caltech10": ("amazon", "caltech", "dslr", "webcam"),
}
FOLDERS: Final = {
    "domainnet": ("domainnet", "DomainNet"),
    "office_caltech10": ("office_caltech10", "office_caltech_10"),
}
TRAIN_SHARE: Final = 0.8
"""Of each class in each domain: the sizes that pFedMoAP's Table 5 gives for both data sets are 80 : 20."""

Files = list[tuple[str, Path]]  # class folder, image


def read_domains(name: str, root: Path, seed: int) -> ImageSet:
    """The data set over all its domains; it has no validation split."""
    domains = DOMAINS[name]
    folder = find_folder(root, FOLDERS[name], domains[0])
    for domain in domains:
        if not (folder / domain).is_dir():
            raise ValueError(f"data.path: found {folder}, expected in it are the folders {', '.join(domains)}")
    splits = [_listed(folder, domain) or _drawn(folder, domain, seed) for domain in domains]
    inner = sorted({name for split in splits for part in split for name, _ in part})
    index = {name: i for i, name in enumerate(inner)}
    train, test = (
        tuple(
            Picture(path, path.relative_to(folder).as_posix(), index[name], d)
            for d, split in enumerate(splits)
            for name, path in split[part]
        )
        for part in (0, 1)
    )
    return ImageSet(folder, tuple(map(spoken, inner)), train, (), test, domains)


def _listed(folder: Path, domain: str) -> tuple[Files, Files] | None:
    """Training and test images by the official lists, where there are any."""
    lists = [folder / f"{domain}_{part}.txt" for part in ("train", "test")]
    if not any(path.is_file() for path in lists):
        return None
    train, test = (list(_lines(folder, domain, path)) for path in lists)
    if shared := {path for _, path in train} & {path for _, path in test}:
        raise ValueError(f"data.path: {min(shared)} is in both lists of {domain}; keep training and test apart")
    return train, test


def _lines(folder: Path, domain: str, path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_file():
        raise ValueError(f"data.path: found {folder}, expected in it is {path.name}, since the other list is there")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        parts = line.rsplit(" ", 1)[0].split("/")
        if len(parts) != 3 or parts[0] != domain or ".." in parts:
            raise ValueError(f"data.path: {path}, line {number} needs {domain}/<class>/<image> and a label")
        yield parts[1], folder.joinpath(*parts)


def _drawn(folder: Path, domain: str, seed: int) -> tuple[Files, Files]:
    """Training and test images, each class cut at ``TRAIN_SHARE``; a class of one image is for training."""
    train: Files = []
    test: Files = []
    for name, paths in class_folders(folder / domain).items():
        lots = sorted(paths, key=lambda path: _lot(seed, path.relative_to(folder).as_posix()))
        cut = round(TRAIN_SHARE * len(lots))
        cut = min(max(cut, 1), max(len(lots) - 1, 1))
        train += [(name, path) for path in sorted(lots[:cut])]
        test += [(name, path) for path in sorted(lots[cut:])]
    return train, test


def _lot(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()
