"""How a server that averages combines updates: one file an aggregator, each with its options; this is their table.

An aggregator is pure and knows no method: named tensors in, named tensors out.
"""

from typing import Annotated

from pydantic import Field

from train.aggregation.clipped_mean import ClippedMean
from train.aggregation.mean import Mean
from train.aggregation.median import Median
from train.aggregation.multi_krum import MultiKrum
from train.aggregation.trimmed_mean import TrimmedMean

__all__ = ["Aggregation", "Mean"]

Aggregation = Annotated[ClippedMean | Mean | Median | MultiKrum | TrimmedMean, Field(discriminator="rule")]
