"""The federated data: scenes in many styles, handwritten digits, how they are shared out; or a folder of one's own."""

from train.data.config import DataConfig
from train.data.examples import ClientData, Example
from train.data.federation import build
from train.data.score import score
from train.data.world.vocabulary import PROMPT_TEMPLATE

__all__ = ["PROMPT_TEMPLATE", "ClientData", "DataConfig", "Example", "build", "score"]
