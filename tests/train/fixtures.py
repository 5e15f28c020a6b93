"""The resident bases, loaded once for all of tests/train."""

from typing import Any

import pytest

from tests.train.small import config
from train.methods import build_method
from train.models.clip import ResidentClip
from train.models.interfaces import ResidentModel
from train.models.mllm import Mllm
from train.models.resident import load_resident


@pytest.fixture(scope="session")
def clip() -> ResidentClip:
    model = load_resident(config("promptfl").base, "clip")
    assert isinstance(model, ResidentClip)
    return model


@pytest.fixture(scope="session")
def mllm() -> Mllm:
    model = load_resident(config("fedit").base, "mllm")
    assert isinstance(model, Mllm)
    return model


@pytest.fixture(scope="session")
def resident(request: pytest.FixtureRequest) -> Any:
    """The base of a method, by the method's name."""

    def of(method: str) -> ResidentModel:
        base: ResidentModel = request.getfixturevalue(build_method(config(method).method).family)
        return base

    return of
