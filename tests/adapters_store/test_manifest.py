import json

import pytest
from pydantic import ValidationError

from adapters_store.manifest import Manifest, first_reason
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
        ({"image_transform": {"size": 64, "mean": [0, 0, float("nan")], "std": [1, 1, 1]}}, "image_transform.mean"),
    ],
)
def test_what_a_manifest_may_not_say_is_named(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        manifest(**changed)
    assert named in first_reason(refusal.value)
