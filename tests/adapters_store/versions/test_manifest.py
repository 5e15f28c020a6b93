import json

import pytest
from pydantic import ValidationError

from adapters_store.versions.manifest import Manifest, first_reason
from tests.adapters_store.artefacts import manifest


def test_the_version_is_the_digest_of_the_canonical_json_and_survives_a_round_trip() -> None:
    made = manifest(class_names=["Kreis", "straße"])
    again = Manifest.model_validate_json(made.canonical_json())
    assert again == made
    assert again.version == made.version
    shuffled = dict(reversed(json.loads(made.canonical_json()).items()))
    assert Manifest.model_validate(shuffled).version == made.version


def test_any_changed_field_is_another_version() -> None:
    made = manifest()
    changes = [{"method": "local"}, {"class_names": ["square", "circle"]}, {"prompt_template": "one {class}."}]
    assert len({made.version, *(manifest(**change).version for change in changes)}) == 4


BEFORE_PRIVACY = (
    b'{"base":{"id":"0123456789abcdef","name":"bases/tiny/clip","quantization":null},"class_names":["circle","square"],'
    b'"client":"amy","family":"clip","files":{},"image_transform":{"interpolation":"bicubic","mean":[0.5,0.5,0.5],'
    b'"size":64,"std":[0.25,0.25,0.25]},"method":"promptfl","prompt_template":"a {class}.","rank":null,'
    b'"role":"personal","schema_version":1,"target_modules":null,'
    b'"trust":{"aggregator":[],"client_only":[],"serving_host":[]}}'
)
"""A manifest written before manifests could tell of differential privacy."""
PRIVACY = {
    "epsilon": 3.5,
    "delta": 1e-5,
    "noise_multiplier": 2.0,
    "clip_norm": 0.5,
    "accountant": "pld",
    "covers": "uploads",
}


def test_a_manifest_without_privacy_keeps_its_bytes_and_its_name() -> None:
    assert manifest().canonical_json() == BEFORE_PRIVACY
    assert manifest().version == Manifest.model_validate_json(BEFORE_PRIVACY).version == "0c1a7c07fd69b5b0"


def test_privacy_is_part_of_what_a_version_is() -> None:
    private = manifest(privacy=PRIVACY)
    assert json.loads(private.canonical_json())["privacy"] == PRIVACY
    assert Manifest.model_validate_json(private.canonical_json()) == private
    costlier = manifest(privacy=PRIVACY | {"epsilon": 4.0})
    assert len({manifest().version, private.version, costlier.version}) == 3


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"client": "../etc"}, "client id '../etc'"),
        ({"client": "Amy"}, "client id 'Amy'"),
        ({"client": "base"}, "client id 'base' is reserved"),
        ({"role": "global"}, "role 'global' does not fit client 'amy'"),
        ({"family": "audio"}, "family"),
        ({"class_names": []}, "class_names is empty"),
        ({"schema_version": 2}, "schema_version"),
        ({"rank": 0}, "rank"),
        ({"colour": "red"}, "colour"),
        ({"files": {"../x": {"sha256": "0" * 64, "bytes": 1}}}, "file '../x'"),
        ({"files": {"model.pkl": {"sha256": "0" * 64, "bytes": 1}}}, "file 'model.pkl'"),
        ({"base": {"id": "xyz", "name": "b", "quantization": None}}, "base.id"),
        ({"privacy": PRIVACY | {"epsilon": float("inf")}}, "privacy.epsilon"),
        ({"privacy": PRIVACY | {"covers": "everything"}}, "privacy.covers"),
        ({"image_transform": {"size": 64, "mean": [0, 0, float("nan")], "std": [1, 1, 1]}}, "image_transform.mean"),
        ({"image_transform": {"size": 64, "mean": [0, 1e9, 0], "std": [1, 1, 1]}}, "image_transform.mean.1"),
        *(
            ({"image_transform": {"size": 64, "mean": [0, 0, 0], "std": [1, 1, bad]}}, "image_transform.std.2")
            for bad in (0, -1, 1e-310, 1e9, float("nan"), float("inf"))
        ),
        *(
            ({"image_transform": {"size": bad, "mean": [0, 0, 0], "std": [1, 1, 1]}}, "image_transform.size")
            for bad in (0, 2049, 10**9)
        ),
        ({"rank": 10**6}, "rank"),
        ({"method": "x" * 2000}, "method"),
        ({"prompt_template": "x" * 70_000}, "prompt_template"),
        ({"class_names": ["x"] * 40_000}, "class_names"),
        ({"class_names": ["x" * 600]}, "class_names.0"),
        ({"trust": {"aggregator": ["x"] * 101}}, "trust.aggregator"),
        ({"files": {"prompt.safetensors": {"sha256": "0" * 64, "bytes": 1 << 33}}}, "files.prompt.safetensors.bytes"),
        (
            {
                "files": {
                    f"encoder_{i}/adapter_model.safetensors": {"sha256": "0" * 64, "bytes": 3 << 30} for i in range(2)
                }
            },
            "files have 6442450944 bytes in all",
        ),
        (
            {"files": {f"encoder_{i}/adapter_config.json": {"sha256": "0" * 64, "bytes": 1} for i in range(65)}},
            "files",
        ),
    ],
)
def test_what_a_manifest_may_not_say_is_named(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        manifest(**changed)
    assert named in first_reason(refusal.value)
