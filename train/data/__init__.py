"""The embedded federated data: scenes in many styles, handwritten digits, and how clients share them out."""

from train.data.config import DataConfig
from train.data.federation import ClientData, Example, build
from train.data.score import score
from train.data.vocabulary import PROMPT_TEMPLATE

__all__ = ["PROMPT_TEMPLATE", "ClientData", "DataConfig", "Example", "build", "score"]
