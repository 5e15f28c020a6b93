"""Every configuration that is shipped is one that a run accepts."""

from pathlib import Path

import pytest
import yaml

from adapters_store.paths import PROJECT_ROOT
from train.data.fields import IMAGE_SETS
from train.data.readers import DOMAINS
from train.methods.sap import SAPOptions
from train.run.config import RunConfig

CONFIGS = PROJECT_ROOT / "train" / "configs"
FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "accelerate")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_valid(path: Path) -> None:
    RunConfig.model_validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("name", [name for name in IMAGE_SETS if name not in ("office_home", "pacs")])
def test_each_public_data_set_of_pfedmoap_has_the_papers_settings(name: str) -> None:
    """Clients, clients a round and rounds as pFedMoAP's section 4.1 and Table 5 give them."""
    config = RunConfig.model_validate(yaml.safe_load((CONFIGS / "paper" / f"pfedmoap_{name}.yaml").read_text()))
    expected = {"cifar10": (100, 10, 120), "cifar100": (100, 10, 120)} | {
        "domainnet": (30, 7, 25),
        "office_caltech10": (20, 10, 25),
    }
    found = (config.data.clients, config.federation.clients_per_round, config.federation.rounds)
    assert found == expected.get(name, (10, None, 10))
    assert config.data.name == name


@pytest.mark.parametrize("name", ["domainnet", "office_home", "pacs"])
def test_sap_leaves_one_domain_out_and_has_a_client_for_each_other(name: str) -> None:
    config = RunConfig.model_validate(yaml.safe_load((CONFIGS / "paper" / f"sap_{name}.yaml").read_text()))
    assert isinstance(config.method, SAPOptions)
    assert (config.method.ratio, config.method.anchors.source, config.method.anchors.count) == (0.95, "coco", 32)
    assert (config.base.path, config.federation.rounds, config.data.name) == ("ViT-B-16", 1, name)
    assert config.data.unseen_domain in DOMAINS[name]
    assert config.data.clients == len(DOMAINS[name]) - 1
