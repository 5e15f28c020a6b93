"""Which way of enlarging the handwritten digits suits the CLIP, judged on their training share alone."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from open_clip import CLIP
from sklearn.datasets import load_digits

from train.data.world.handwriting import Preprocessing, load_handwriting, to_pictures
from train.data.world.vocabulary import DIGITS
from train.pretraining.evaluation import class_features, image_features

CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "ink": ((0.9, 0.1, 0.1), (0.1, 0.7, 0.15), (0.1, 0.2, 0.9), (0.25, 0.95, 0.95), (0.9, 0.9, 0.9)),
    "paper": (0.1, 0.5, 0.9),
    "edge": (44, 48, 52, 58),
    "width": (0.7, 0.85, 1.0),
    "level": (0.3, 0.4, 0.5, 0.6),
    "sharpness": (4.0, 8.0),
}
"""Settings tried, one after another, each with the best of those before."""
EVERY: Final = 4
"""One in so many digits of the training share is looked at."""


def search(model: CLIP) -> Iterator[tuple[float, Preprocessing]]:
    """Zero-shot accuracy of everything tried, the best last."""
    data = load_handwriting()
    grey = torch.from_numpy(load_digits().images[data.is_train][::EVERY]).float() / 16
    truth = torch.from_numpy(data.labels[data.is_train][::EVERY])
    classes = class_features(model, DIGITS)
    best = (0.0, Preprocessing())
    for field, values in CHOICES.items():
        for value in values:
            tried = replace(best[1], **{field: value})
            guess = (image_features(model, to_pictures(grey, tried)) @ classes.T).argmax(1)
            found = ((guess == truth).float().mean().item(), tried)
            yield found
            best = max(best, found, key=lambda entry: entry[0])
    yield best
