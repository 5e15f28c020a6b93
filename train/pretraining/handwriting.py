"""Which way of enlarging the handwritten digits suits the CLIP, judged on their training share alone."""

import itertools
from typing import Any

import torch
from open_clip import CLIP
from sklearn.datasets import load_digits

from train.data.handwriting import load_handwriting, to_pictures
from train.data.vocabulary import DIGITS
from train.pretraining.evaluation import class_features, image_features

EDGES = (32, 36, 40, 44, 48, 52)
LEVELS = (0.3, 0.4, 0.5)
SHARPNESSES = (3.0, 6.0, 12.0)
PAPERS = ((0.1, 0.9), (0.2, 0.9), (0.9, 0.1), (0.5, 0.95))


def rank_preprocessings(model: CLIP) -> list[tuple[float, dict[str, Any]]]:
    """Zero-shot accuracy of every combination of `to_pictures`' settings, best first."""
    data = load_handwriting()
    grey = torch.from_numpy(load_digits().images[data.is_train]).float() / 16
    truth = torch.from_numpy(data.labels[data.is_train])
    classes = class_features(model, DIGITS)
    ranked = []
    for edge, level, sharpness, paper in itertools.product(EDGES, LEVELS, SHARPNESSES, PAPERS):
        settings: dict[str, Any] = {"edge": edge, "level": level, "sharpness": sharpness, "paper": paper}
        guess = (image_features(model, to_pictures(grey, **settings)) @ classes.T).argmax(1)
        ranked.append(((guess == truth).float().mean().item(), settings))
    return sorted(ranked, key=lambda entry: -entry[0])
