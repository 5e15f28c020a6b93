"""Readers of public data sets in local folders; nothing is downloaded."""

from pathlib import Path

from train.data.readers.cifar import FORMS, read_cifar
from train.data.readers.coop import LAYOUTS, read_coop
from train.data.readers.domains import DOMAINS, read_domains
from train.data.readers.pictures import ImageSet, Picture

__all__ = ["DOMAINS", "ImageSet", "Picture", "read_image_set"]


def read_image_set(name: str, root: Path, seed: int) -> ImageSet:
    """The data set of this name under ``root``; ``seed`` draws the split of those that have none of their own."""
    if not root.is_dir():
        raise ValueError(f"data.path: {root} is not a folder; it must hold the data set {name}")
    if name in LAYOUTS:
        return read_coop(name, root)
    return read_cifar(name, root) if name in FORMS else read_domains(name, root, seed)
