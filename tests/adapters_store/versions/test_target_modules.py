"""Target modules are names. No regular expression of an adapter is run, and what was published with one still loads."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters_store.store import Store, StoreError
from adapters_store.versions.target_modules import selector
from tests.adapters_store.artefacts import MODULES, lora_files, manifest
from tests.adapters_store.damage import in_time

LANGUAGE = r".*language_model.*\.layers\.\d+\.(self_attn|mlp)\.(q_proj|v_proj|up_proj)"
PLAIN = r".*language_model.*\.(q_proj|v_proj)"
VISION = r"visual\.transformer\.resblocks\.\d+\.(attn|mlp\.c_fc)"
PATHS = [
    *MODULES,
    "base.language_model.model.layers.31.mlp.up_proj",
    "model.language_model.layers.0.mlp.down_proj",
    "model.language_model.layers.x.mlp.up_proj",
    "model.language_model.layers.0.mlp.experts.up_proj",
    "model.vision_tower.layers.0.self_attn.q_proj",
    "layers.0.self_attn.language_model.q_proj",
    "language_model.layers.0.self_attn.q_proj",
    "language_model.q_proj",
    "language_modelq_proj",
    "language_model.norm.xq_proj",
    "visual.transformer.resblocks.0.attn",
    "visual.transformer.resblocks.11.mlp.c_fc",
    "visual.transformer.resblocks.11.mlp.c_proj",
    "visual.transformer.resblocks..attn",
    "visual.transformer.resblocks.1.2.attn",
    "text.visual.transformer.resblocks.0.attn",
    "transformer.resblocks.0.attn",
]


def publish(store: Store, targets: Any, tensors: dict[str, Any] | None = None) -> str:
    """A LoRA on the language model whose configuration has these target modules, and its manifest if it can."""
    try:
        said = manifest(family="mllm", target_modules=targets)
    except ValueError:
        said = manifest(family="mllm")
    return store.publish(said, lora_files(tensors, target_modules=targets), {}, activate=True)


@pytest.mark.parametrize("pattern", [LANGUAGE, PLAIN, VISION])
def test_a_pattern_published_before_names_were_selects_what_its_regular_expression_did(pattern: str) -> None:
    selects = selector(pattern)
    assert {path for path in PATHS if selects(path)} == {path for path in PATHS if re.fullmatch(pattern, path)}
    assert 0 < sum(map(selects, PATHS)) < len(PATHS)


def test_a_name_selects_the_paths_that_end_in_it() -> None:
    selects = selector(["q_proj", "1.self_attn.v_proj"])
    assert [path for path in MODULES if selects(path)] == [MODULES[0], MODULES[2], MODULES[3]]
    assert not selects("model.xq_proj")


@pytest.mark.parametrize("targets", [PLAIN, LANGUAGE, MODULES, ["q_proj", "v_proj"], "all-linear"])
def test_names_and_the_old_patterns_are_published(tmp_path: Path, targets: str | list[str]) -> None:
    store = Store(tmp_path)
    assert store.verify("amy", publish(store, targets)).manifest.target_modules == targets


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ("(", r"target_modules is '\(': a list of modules' names is needed; of patterns only"),
        ("(a|a?)+$", "a list of modules' names is needed"),
        (r".*language_model.*\.((q_proj|v_proj)+)+", "a list of modules' names is needed"),
        (r".*language_model.*\.(q_proj|v_proj)|.*", "a list of modules' names is needed"),
        (r".*language_model.*\.()", "a list of modules' names is needed"),
        ("x" * 2000, r"target_modules\.pattern: String should have at most 1024"),
        ([["q"]], r"target_modules\.names\.0: Input should be a valid string, found \['q'\]"),
        ([], r"target_modules\.names: List should have at least 1"),
        (["q_proj", "v_proj\n"], r"target_modules holds 'v_proj\\n': a module's name is"),
        (["q_proj", "x" * 300], "a module's name is 1 to 256 of"),
        (["q_proj", ".*"], r"target_modules holds '\.\*'"),
        (None, r"target_modules"),
        ({"q_proj": 1}, r"target_modules\.names: Input should be a valid list"),
    ],
)
def test_anything_else_is_refused_in_a_sentence_that_says_what_is_allowed(
    tmp_path: Path, targets: Any, sentence: str
) -> None:
    with in_time(), pytest.raises(StoreError, match=sentence):
        publish(Store(tmp_path), targets)


def test_a_pattern_that_never_ends_is_never_begun(tmp_path: Path) -> None:
    module = "model.language_model." + "a" * 60
    tensors = {f"base_model.model.{module}.lora_{side}.weight": lora for side, lora in ab().items()}
    with in_time(5), pytest.raises(StoreError, match="a list of modules' names is needed"):
        publish(Store(tmp_path), r"model\.language_model\.(a|aa)+b", tensors)


def ab() -> dict[str, Any]:
    import numpy as np

    return {"A": np.ones((4, 16), np.float32), "B": np.ones((24, 4), np.float32)}


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def test_many_long_names_take_time_in_proportion() -> None:
    """100,000 names of 240 characters for 2,000 modules: by comparing each with each, 2·10⁸ comparisons."""
    names = [f"{'layer.' * 38}{number}" for number in range(100_000)]
    selects = selector(names)
    modules = [f"base.{name}" for name in names[:1000]] + [f"{name}.x" for name in names[:1000]]
    assert timed(lambda: [selects(module) for module in modules]) < 2.0
    assert sum(map(selects, modules)) == 1000
