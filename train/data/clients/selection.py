"""What a configuration asks for of a public data set: few images a class, some classes, all domains but one."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from train.data.clients.few_shot import few_shot
from train.data.config import DataConfig
from train.data.readers import ImageSet, read_image_set


def read_selection(config: DataConfig, root: Path, seed: int) -> ImageSet:
    """The data set, its training images, domains and classes cut down to those asked for."""
    data = whole = read_image_set(config.name, root, seed)
    if config.few_shot is not None:  # of all classes and domains: the saved split serves whichever are asked for
        train, rest = few_shot(whole, config.few_shot, seed)
        data = replace(data, train=tuple(train), val=data.val or tuple(rest))
    if config.unseen_domain is not None:
        data = _hold_out(data, whole, whole.domains.index(config.unseen_domain))
    return _only(data, config.classes) if config.classes else data


def _hold_out(data: ImageSet, whole: ImageSet, domain: int) -> ImageSet:
    """The data set without this domain, of which all images are ``unseen``."""
    train, val, test = (
        tuple(replace(p, domain=p.domain - (p.domain > domain)) for p in part if p.domain != domain)
        for part in (data.train, data.val, data.test)
    )
    unseen = tuple(p for part in (whole.train, whole.val, whole.test) for p in part if p.domain == domain)
    domains = data.domains[:domain] + data.domains[domain + 1 :]
    return replace(data, train=train, val=val, test=test, unseen=unseen, domains=domains)


def _only(data: ImageSet, names: Sequence[str]) -> ImageSet:
    """The data set with these classes alone, in this order."""
    for name in names:
        if name not in data.class_names:
            near = difflib.get_close_matches(name, data.class_names, 3, cutoff=0.0)
            raise ValueError(f"classes: found {name!r}, which the data do not have; nearest are {', '.join(near)}")
    kept = {data.class_names.index(name): label for label, name in enumerate(names)}
    train, val, test, unseen = (
        tuple(replace(picture, label=kept[picture.label]) for picture in part if picture.label in kept)
        for part in (data.train, data.val, data.test, data.unseen)
    )
    coarse = tuple(data.coarse[label] for label in kept) if data.coarse else ()
    return replace(data, class_names=tuple(names), train=train, val=val, test=test, coarse=coarse, unseen=unseen)
