"""DomainNet (Peng et al. 2019), Office-Caltech10 (Gong et al. 2012), Office-Home (Venkateswara et al. 2017) and PACS
(Li et al. 2017): folders <domain>/<class>/<image>.

An official split is used where a domain has its lists, beside the folder of the domain or in a folder ``splits``, a
line "clipart/zebra/clipart_344_000001.jpg 344" an image: DomainNet's <domain>_train.txt and <domain>_test.txt, PACS's
<domain>_train_kfold.txt and <domain>_crossval_kfold.txt (its third list, test, is of all images). Otherwise a share of
each class is drawn for training, by seed: whether an image is among it hangs on no other class.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from train.data.readers.pictures import ImageSet, Picture, class_folders, find_folder, spoken

DOMAINS: Final = {
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "office_caltech10": ("amazon", "caltech", "dslr", "webcam"),
    "office_home": ("Art", "Clipart", "Product", "Real World"),
    "pacs": ("art_painting", "cartoon", "photo", "sketch"),
}
"""A folder may have underscores for spaces."""
FOLDERS: Final = {
    "domainnet": ("domainnet", "DomainNet"),
    "office_caltech10": ("office_caltech10", "office_caltech_10"),
    "office_home": ("office_home", "OfficeHome", "OfficeHomeDataset_10072016"),
    "pacs": ("pacs", "PACS", "pacs/images", "images"),
}
LISTS: Final = {"pacs": ("{}_train_kfold.txt", "{}_crossval_kfold.txt")}
"""Names of a domain's lists for training and test where they are not DomainNet's."""
FAULTY: Final = frozenset({"sketch/dog/n02103406_4068-1.png"})
"""In PACS's lists, but no good image: Dassl (Zhou et al. 2021) leaves it out too."""
TRAIN_SHARE: Final = 0.8
"""Of each class in each domain: the sizes that pFedMoAP's Table 5 gives for both data sets are 80 : 20."""

Files = list[tuple[str, Path]]  # class folder, image


def read_domains(name: str, root: Path, seed: int) -> ImageSet:
    """The data set over all its domains; it has no validation split."""
    domains = DOMAINS[name]
    folder = find_folder(root, FOLDERS[name], domains[0])
    for domain in domains:
        if not _place(folder, domain).is_dir():
            raise ValueError(f"data.path: found {folder}, expected in it are the folders {', '.join(domains)}")
    lists = LISTS.get(name, ("{}_train.txt", "{}_test.txt"))
    splits = [_listed(folder, domain, lists) or _drawn(folder, domain, seed) for domain in domains]
    inner = sorted({kind for split in splits for part in split for kind, _ in part})
    index = {kind: i for i, kind in enumerate(inner)}
    train, test = (
        tuple(
            Picture(path, _name(domains[d], path), index[kind], d)
            for d, split in enumerate(splits)
            for kind, path in split[part]
            if _name(domains[d], path) not in FAULTY
        )
        for part in (0, 1)
    )
    return ImageSet(folder, tuple(map(spoken, inner)), train, (), test, domains)


def _place(folder: Path, domain: str) -> Path:
    """The folder of a domain."""
    return next(
        (path for path in (folder / domain, folder / domain.replace(" ", "_")) if path.is_dir()), folder / domain
    )


def _name(domain: str, path: Path) -> str:
    """An image's name in the data set, the same however the folder of its domain is spelled."""
    return f"{domain}/{path.parent.name}/{path.name}"


def _listed(folder: Path, domain: str, lists: tuple[str, str]) -> tuple[Files, Files] | None:
    """Training and test images by the official lists, where there are any."""
    for place in (folder, folder / "splits", folder.parent / "splits"):
        paths = [place / name.format(domain) for name in lists]
        if any(path.is_file() for path in paths):
            break
    else:
        return None
    train, test = (list(_lines(folder, domain, path)) for path in paths)
    if shared := {path for _, path in train} & {path for _, path in test}:
        raise ValueError(f"data.path: {min(shared)} is in both lists of {domain}; keep training and test apart")
    return train, test


def _lines(folder: Path, domain: str, path: Path) -> Iterator[tuple[str, Path]]:
    if not path.is_file():
        raise ValueError(
            f"data.path: found {path.parent}, expected in it is {path.name}, since the other list is there"
        )
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
    for kind, paths in class_folders(_place(folder, domain)).items():
        lots = sorted(paths, key=lambda path: _lot(seed, _name(domain, path)))
        cut = round(TRAIN_SHARE * len(lots))
        cut = min(max(cut, 1), max(len(lots) - 1, 1))
        train += [(kind, path) for path in sorted(lots[:cut])]
        test += [(kind, path) for path in sorted(lots[cut:])]
    return train, test


def _lot(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode()).hexdigest()
