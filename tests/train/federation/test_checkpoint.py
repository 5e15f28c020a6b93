"""Commits: all of a round or nothing of it."""

from pathlib import Path

import torch

from train.federation.checkpoint import Checkpoints
from train.tensors import to_bytes


def staged(folder: Path, **clients: float) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    paths = {}
    for client, value in clients.items():
        paths[client] = folder / f"{client}.safetensors"
        paths[client].write_bytes(to_bytes({"v": torch.tensor(value)}))
    return paths


def test_a_commit_holds_the_new_states_and_keeps_the_others(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.latest() is None
    checkpoints.commit(1, {"s": torch.tensor(1.0)}, {"logged": 3}, staged(tmp_path / "p", ann=1.0, bob=1.0))
    checkpoints.commit(2, {"s": torch.tensor(2.0)}, {"logged": 5}, staged(tmp_path / "p", bob=2.0))
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.round == 2
    assert latest.server["s"] == 2.0
    assert latest.progress == {"logged": 5}
    values = {client: state["v"].item() for client in ("ann", "bob") if (state := latest.client(client))}
    assert values == {"ann": 1.0, "bob": 2.0}
    assert latest.client("eve") is None


def test_a_commit_cut_short_is_invisible_and_can_be_repeated(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.commit(1, {"s": torch.tensor(1.0)}, {}, {})
    partial = tmp_path / "c" / "partial-0002"
    (partial / "clients").mkdir(parents=True)
    (partial / "server.safetensors").write_bytes(b"half")
    latest = checkpoints.latest()
    assert latest is not None
    assert latest.round == 1
    assert checkpoints.commit(2, {"s": torch.tensor(2.0)}, {}, {}).server["s"] == 2.0


def test_old_rounds_are_removed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in range(1, 6):
        checkpoints.commit(number, {}, {}, staged(tmp_path / "p", ann=float(number)))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.isdigit()) == ["0004", "0005"]
