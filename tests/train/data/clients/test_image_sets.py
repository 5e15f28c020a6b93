"""Federations from public data sets, on small trees in their layouts: every partition, every data set."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.data.readers.trees import cifar10_tree, cifar100_tree, coop_tree, domain_tree, picture
from train.data import ClientData, DataConfig, Example, build
from train.data.readers.coop import LAYOUTS
from train.data.readers.domains import DOMAINS

EVERYTHING: dict[str, Any] = {"tasks": ["classify"], "train_per_client": 10_000, "test_per_client": 10_000}


def make(root: Path, name: str, seed: int = 0, **settings: Any) -> list[ClientData]:
    config = DataConfig.model_validate(EVERYTHING | {"name": name, "path": str(root)} | settings)
    return build(config, seed)


def everything(clients: list[ClientData]) -> list[Example]:
    return [example for client in clients for split in (client.train, client.val, client.test) for example in split]


def check(clients: list[ClientData]) -> None:
    """What holds of every federation: splits and clients share no image, and labels index the class names."""
    examples = everything(clients)
    assert len({example.uid for example in examples}) == len(examples)
    assert len({example.digest for example in examples}) == len(examples)
    for client in clients:
        assert client.train
        assert client.test
        for example in (*client.train, *client.val, *client.test):
            assert client.class_names[example.label] == example.answer
            assert (example.task, example.image.shape[2], example.image.dtype) == ("classify", 3, np.uint8)


@pytest.mark.parametrize("name", LAYOUTS)
def test_pathological_few_shot(tmp_path: Path, name: str) -> None:
    coop_tree(tmp_path, name, classes=5)
    settings = {"clients": 2, "partition": "pathological", "classes_per_client": 2, "few_shot": 4}
    clients = make(tmp_path, name, **settings)
    check(clients)
    assert [client.id for client in clients] == ["client-00", "client-01"]
    assert len({n for client in clients for n in client.class_names}) == 4
    for client in clients:
        assert Counter(e.label for e in client.train) == {0: 4, 1: 4}
        assert Counter(e.label for e in client.val) == {0: 2, 1: 2}
        assert Counter(e.label for e in client.test) == {0: 3, 1: 3}
        assert isinstance(client.train[0].source, Path)
        assert client.note == f"{name}: 2 classes"
    assert make(tmp_path, name, **settings) == clients
    assert make(tmp_path, name, seed=1, **settings) != clients


def test_all_classes_given_out_evenly_and_all_told_apart(tmp_path: Path) -> None:
    coop_tree(tmp_path, "dtd", classes=7)
    settings = {"clients": 3, "partition": "pathological", "classes_per_client": None, "candidates": "all"}
    clients = make(tmp_path, "dtd", **settings)
    check(clients)
    held = [{example.answer for example in client.train} for client in clients]
    assert sorted(map(len, held)) == [2, 2, 3]
    assert len(set.union(*held)) == 7
    assert all(client.class_names == tuple(f"kind {c}" for c in range(7)) for client in clients)
    assert all({e.answer for e in client.test} == own for client, own in zip(clients, held, strict=True))


def test_sizes_are_limits(tmp_path: Path) -> None:
    cifar10_tree(tmp_path)
    settings = {"clients": 2, "partition": "pathological", "classes_per_client": 5}
    limited = make(tmp_path, "cifar10", **settings, train_per_client=7, val_per_client=3, test_per_client=4)
    check(limited)
    assert [(len(c.train), len(c.val), len(c.test)) for c in limited] == [(7, 3, 4)] * 2
    whole = make(tmp_path, "cifar10", **settings, val_per_client=6)
    check(whole)
    assert [(len(c.train), len(c.val), len(c.test)) for c in whole] == [(44, 6, 10)] * 2


def test_few_shot_without_a_validation_split_validates_on_the_rest(tmp_path: Path) -> None:
    cifar10_tree(tmp_path)
    clients = make(tmp_path, "cifar10", clients=2, partition="pathological", classes_per_client=5, few_shot=4)
    check(clients)
    assert [(len(c.train), len(c.val)) for c in clients] == [(20, 30)] * 2
    clients = make(tmp_path, "cifar10", clients=2, partition="pathological", classes_per_client=5, few_shot=10)
    assert [(len(c.train), len(c.val)) for c in clients] == [(50, 0)] * 2


def test_dirichlet_is_alike_in_training_and_test(tmp_path: Path) -> None:
    cifar10_tree(tmp_path, each=30)
    clients = make(tmp_path, "cifar10", clients=4, partition="dirichlet", alpha=0.5, val_per_client=0)
    check(clients)
    assert len(everything(clients)) == 6 * 300
    for client in clients:
        assert len(client.class_names) == 10
        train, test = (np.bincount([e.label for e in s], minlength=10) / len(s) for s in (client.train, client.test))
        assert np.abs(train - test).max() < 0.05
        assert train.max() > 0.15


def test_pachinko_needs_super_classes_and_follows_them(tmp_path: Path) -> None:
    cifar100_tree(tmp_path, train=40, test=8)
    settings = {"partition": "pachinko", "clients": 6, "alpha": 0.1, "val_per_client": 10}
    clients = make(tmp_path, "cifar100", **settings)
    check(clients)
    assert [(len(c.train), len(c.val), len(c.test)) for c in clients] == [(70, 10, 16)] * 6
    most = [Counter(e.label // 3 for e in c.train).most_common(1)[0][1] / 70 for c in clients]
    assert float(np.mean(most)) > 0.6
    chosen = make(tmp_path, "cifar100", **settings, classes=["kind 7", "kind 2"])
    check(chosen)
    assert chosen[0].class_names == ("kind 7", "kind 2")


@pytest.mark.parametrize("name", DOMAINS)
def test_a_domain_a_client_or_several_clients_a_domain(tmp_path: Path, name: str) -> None:
    domain_tree(tmp_path, name, classes=4, each=20)
    domains = DOMAINS[name]
    single = make(tmp_path, name, clients=len(domains), partition="domain", val_per_client=2)
    check(single)
    assert [client.note for client in single] == [f"{domain}: 4 classes" for domain in domains]
    assert all({e.style for e in (*c.train, *c.test)} == {d} for c, d in zip(single, domains, strict=True))
    assert [(len(c.train), len(c.val), len(c.test)) for c in single] == [(62, 2, 16)] * len(domains)
    double = make(tmp_path, name, clients=2 * len(domains), partition="domain", val_per_client=0)
    check(double)
    assert [c.train[0].style for c in double] == [domain for domain in domains for _ in range(2)]
    for first, second in zip(double[::2], double[1::2], strict=True):
        assert len(first.train) + len(second.train) == 64
        assert Counter(e.label for e in first.train) != Counter(e.label for e in second.train)


@pytest.mark.parametrize("shots", [None, 2])
def test_a_domain_left_out(tmp_path: Path, shots: int | None) -> None:
    domain_tree(tmp_path, "office_home", each=10)
    settings = {"clients": 3, "partition": "domain", "unseen_per_client": 10_000, "few_shot": shots}
    clients = make(tmp_path, "office_home", unseen_domain="Clipart", val_per_client=0, **settings)
    check(clients)
    assert [client.train[0].style for client in clients] == ["Art", "Product", "Real World"]
    assert all({e.style for e in (*c.train, *c.test)} == {c.train[0].style} for c in clients)
    left_out = clients[0].unseen["style"]
    assert len({e.uid for e in left_out}) == len(left_out) == 30
    assert {(e.style, e.answer == clients[0].class_names[e.label]) for e in left_out} == {("Clipart", True)}
    assert all(client.unseen == clients[0].unseen for client in clients)
    assert not {e.digest for e in left_out} & {e.digest for e in everything(clients)}
    few = settings | {"unseen_per_client": 7, "classes": ["kind 2", "kind 0"], "unseen_domain": "Real World"}
    (first, *_) = make(tmp_path, "office_home", **few)
    assert len(first.unseen["style"]) == 7
    assert {(e.style, e.answer, e.label) for e in first.unseen["style"]} == {
        ("Real World", "kind 2", 0),
        ("Real World", "kind 0", 1),
    }


@pytest.mark.parametrize("partition", ["pathological", "dirichlet"])
def test_domains_may_be_divided_by_class_too(tmp_path: Path, partition: str) -> None:
    domain_tree(tmp_path, "office_caltech10", classes=4, each=20)
    clients = make(tmp_path, "office_caltech10", clients=2, partition=partition, classes_per_client=2)
    check(clients)
    assert all({e.style for e in c.train} == set(DOMAINS["office_caltech10"]) for c in clients)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"partition": "pathological", "classes_per_client": 3}, "classes_per_client: 2 clients × 3 classes need 6"),
        ({"partition": "pathological", "classes_per_client": None, "clients": 6}, "clients: found 6, .* at most 5"),
        ({"partition": "dirichlet", "clients": 40, "alpha": 50}, "clients: found 40, so many that some have no"),
        ({"partition": "dirichlet", "classes": ["kind 77"]}, "classes: found 'kind 77', .* nearest are kind"),
        ({"partition": "dirichlet", "few_shot": 2, "clients": 20, "alpha": 9}, "clients: found 20, so many"),
    ],
)
def test_settings_that_do_not_fit_the_data(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    coop_tree(tmp_path, "dtd", classes=5)
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make(tmp_path, "dtd", **{"clients": 2, **settings})


def test_an_image_that_the_split_names_must_be_there(tmp_path: Path) -> None:
    folder = coop_tree(tmp_path, "dtd")
    (folder / "images" / "Kind_1" / "image_0013.png").unlink()
    with pytest.raises(
        ValueError, match=r"^data\.path: .*image_0013\.png is missing, though the split of dtd names it"
    ):
        make(tmp_path, "dtd", clients=2, partition="dirichlet", alpha=5)


def test_pachinko_is_refused_without_super_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        picture(tmp_path / part / "cat" / "0.png", 0)
    with pytest.raises(ValueError, match=r"^partition: pachinko needs super-classes, which only CIFAR-100's binary"):
        make(tmp_path, "cifar100", clients=1, partition="pachinko")
