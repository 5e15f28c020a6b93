"""One-shot federation: what travels, what is merged, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.floats import check_close, rounding
from tests.train.small import config, federation, yaml_file
from train.fed import main
from train.merging.adapter import read_adapter
from train.merging.ataf import ataf
from train.merging.ataf_alpha import choose_alpha
from train.methods.contract import ServerContext, Update
from train.methods.one_shot import MERGED
from train.models.alignment_gradients import alignment_gradients
from train.models.captions import Captions
from train.tensors import Tensors, generator

pytestmark = pytest.mark.numeric

ONE_SHOT = ["anchored", "ataf", "sap"]
FACTORS = 768 + 6  # additions in a product of factors: the widest layer's, and three clients of rank 2


def updates(method: Any, model: Any, clients: Any) -> list[Update]:
    """What clients could have sent: their B is no longer zero."""
    start = method.initial(model, clients, 0)
    return [Update(client.id, 8, trained(start, k)) for k, client in enumerate(clients)]


def trained(start: Tensors, seed: int) -> Tensors:
    random = torch.Generator().manual_seed(seed)
    return {name: t + 0.05 * torch.randn(t.shape, generator=random) for name, t in start.items()}


@pytest.mark.parametrize("name", ONE_SHOT)
def test_clients_talk_once_and_keep_what_they_trained(name: str, resident: Any, tmp_path: Path) -> None:
    loop, _ = federation(config(name, evaluate={"references": []}), resident(name), tmp_path)
    loop._round(1, None)
    uploads = {path.stem: path.read_bytes() for path in (tmp_path / "exchange").glob("train-*/up/*.safetensors")}
    endings, shared = loop.run()
    assert uploads == {client: ending.artefact.files["adapter_model.safetensors"] for client, ending in endings.items()}
    assert uploads.keys() == {client.id for client in loop.clients}
    merged = loop.checkpoints.latest()
    assert merged is not None
    assert any(tensor.startswith(MERGED) for tensor in merged.server)
    assert loop.method.parcel(merged.server, loop.clients[0]) == {}
    assert shared is not None
    assert shared.files.keys() == endings[loop.clients[0].id].artefact.files.keys()
    assert set(shared.class_names) == {name for client in loop.clients for name in client.class_names}


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_sap_is_what_its_definition_says(scope: str, clip: Any, tmp_path: Path) -> None:
    """Every step of docs/methods.md#sap over again, in numpy."""
    settings = config("sap", method={"ratio": 0.7, "scope": scope})
    loop, _ = federation(settings, clip, tmp_path)
    method: Any = loop.method
    sent = updates(method, clip, loop.clients)
    state = method.combine({}, sent, ServerContext(clip, loop.clients, 0, 1, 0))
    s = method.options.lora.scale
    total: dict[str, Any] = {}
    for update in sent:
        gradients = alignment_gradients(clip, update.tensors, s, method.anchors(0), "factors")
        entries = {}
        for module, (of_b, of_a) in gradients.items():
            a, b = update.tensors[f"{module}.lora_A.weight"], s * update.tensors[f"{module}.lora_B.weight"]
            for side, factor, gradient in (("lora_A", a, of_a), ("lora_B", b, of_b)):
                value = factor.double().numpy()
                entries[f"{module}.{side}.weight"] = value, np.abs(value * gradient.double().numpy())
        kept = masked(entries, 0.7, scope)
        for module in gradients:
            product = kept[f"{module}.lora_B.weight"] @ kept[f"{module}.lora_A.weight"]
            total[module] = total.get(module, 0) + product / len(sent)
    for module, wanted in total.items():
        b, a = (state[f"{MERGED}{module}.{side}.weight"].double().numpy() for side in ("lora_B", "lora_A"))
        check_close(s * b @ a, wanted, len(a))


def masked(entries: dict[str, tuple[Any, Any]], ratio: float, scope: str) -> dict[str, Any]:
    """Each tensor with its lowest scores zero, ⌊ρ n⌋ over all or within each; names in order."""
    groups = [sorted(entries)] if scope == "global" else [[name] for name in sorted(entries)]
    kept = {}
    for names in groups:
        scores = np.concatenate([entries[name][1].ravel() for name in names])
        mask = np.ones(len(scores))
        mask[np.argsort(scores, kind="stable")[: int(ratio * len(scores))]] = 0
        parts = np.split(mask, np.cumsum([entries[name][1].size for name in names])[:-1])
        kept |= {
            name: entries[name][0] * part.reshape(entries[name][0].shape)
            for name, part in zip(names, parts, strict=True)
        }
    return kept


def test_a_merge_cut_to_a_rank_says_what_is_left(clip: Any, tmp_path: Path) -> None:
    exact: Any = None
    for rank, kept in ((None, 1.0), (6, 1.0), (2, None)):
        loop, _ = federation(config("sap", method={"ratio": 0.0, "rank": rank}), clip, tmp_path / str(rank))
        sent = updates(loop.method, clip, loop.clients)
        state = loop.method.combine({}, sent, ServerContext(clip, loop.clients, 0, 1, 0))
        found = loop.method.diagnose(state, sent)
        assert found["rank"] == (rank or 6)  # three clients of rank 2
        if kept is None:
            assert 0.5 < found["kept_norm"] < 0.99
        else:
            check_close(found["kept_norm"], kept, FACTORS)
        whole = dense(state, loop.method.options.lora.scale)
        exact = whole if exact is None else exact
        off = sum(float((whole[m] - exact[m]).pow(2).sum()) for m in exact) ** 0.5
        norm = sum(float(exact[m].pow(2).sum()) for m in exact) ** 0.5
        check_close(found["recompression_error"], off / norm, FACTORS, size=1.0)


def dense(state: Tensors, scale: float) -> dict[str, Tensor]:
    """ΔW of the merge in a server's state."""
    merged = {n.removeprefix(MERGED): t for n, t in state.items() if n.startswith(MERGED)}
    return {module: b @ a for module, (b, a) in read_adapter(merged, scale).items()}


@pytest.mark.parametrize("family", ["clip", "mllm"])
def test_whoever_is_not_in_the_merge_is_sent_it(family: str, request: Any, tmp_path: Path) -> None:
    """A client that no round drew publishes the merge as its own; its row alone stays empty."""
    sections: dict[str, Any] = {"federation": {"clients_per_round": 2}, "evaluate": {"references": []}}
    if family == "mllm":
        asked = {"tasks": ["count"], "few_shot": None, "train_per_client": 8, "test_per_client": 4}
        sections |= {"data": asked, "base": {"path": "bases/tiny/llava"}}
    settings = config("sap", method={"family": family, "rank": 3}, **sections)
    loop, _ = federation(settings, request.getfixturevalue(family), tmp_path)
    endings, shared = loop.run()
    committed = loop.checkpoints.latest()
    assert committed is not None
    assert shared is not None
    drawn = committed.progress["taken_part"]
    assert len(drawn) == 2
    for client, ending in endings.items():
        same = ending.artefact.files["adapter_model.safetensors"] == shared.files["adapter_model.safetensors"]
        assert same == (client not in drawn)
        assert ending.artefact.rank == (2 if client in drawn else 3)


def test_ataf_fuses_in_client_order_and_can_choose_its_share(clip: Any, tmp_path: Path) -> None:
    for alpha in (0.3, "jsd"):
        loop, _ = federation(config("ataf", method={"alpha": alpha}), clip, tmp_path / str(alpha))
        method: Any = loop.method
        sent = updates(method, clip, loop.clients)
        s = method.options.lora.scale
        a, b = (read_adapter(update.tensors, s) for update in sent)
        state = method.combine({}, sent, ServerContext(clip, loop.clients, 0, 1, 0))
        merged = {at: ataf(a, b, at) for at in (0.1, 0.3, 0.5, 0.7, 0.9)}
        whole = dense(state, s)
        found = [
            at
            for at, of in merged.items()
            if all(
                float((whole[m] - left @ right).norm()) <= rounding(FACTORS) * float(whole[m].norm())
                for m, (left, right) in of.items()
            )
        ]
        logits = method.carrier.predictions(clip, method.anchors(0), a, b)
        between = {at: logits(one) for at, one in merged.items()}
        chosen, _ = choose_alpha(logits(a), logits(b), between.__getitem__)
        assert found == [chosen if alpha == "jsd" else alpha]
        assert chosen != 0.1  # nor the first candidate in any case


def test_anchored_merging_does_better_on_corrupted_anchors_than_the_mean(clip: Any, tmp_path: Path) -> None:
    loop, _ = federation(config("anchored", method={"steps": 12, "lr": 0.2, "gain": 1.0}), clip, tmp_path)
    method: Any = loop.method
    sent = updates(method, clip, loop.clients)
    adapters = [read_adapter(update.tensors, method.options.lora.scale) for update in sent]
    captions = Captions(clip, method.anchors(0))

    def loss(adapter: Any) -> float:
        return float(np.mean([captions.loss(adapter, generator(1, "held back", i)).item() for i in range(4)]))

    merged = method.merge(clip, adapters, sent, 0)
    mean = {m: (torch.cat([a[m][0] / 3 for a in adapters], 1), torch.cat([a[m][1] for a in adapters])) for m in merged}
    assert loss(merged) < loss(mean)
    again = method.merge(clip, adapters, sent, 0)
    assert all(torch.equal(merged[module][0], again[module][0]) for module in merged)


@pytest.mark.parametrize(
    ("name", "sections", "sentence"),
    [
        ("sap", {"federation": {"rounds": 3}}, "federation.rounds: found 3; sap talks once, 1 is allowed"),
        ("sap", {"client": {"personal_steps": 2}}, "sap publishes what a client trained last, so 0 is allowed"),
        ("sap", {"method": {"space": "delta"}}, "rank: found null with method.space 'delta'"),
        (
            "sap",
            {"method": {"lora": {"targets": ["q_proj"]}}},
            "lora.targets: found 'q_proj', family clip has in_proj, out_proj, c_fc, c_proj",
        ),
        ("sap", {"method": {"anchors": {"tasks": ["count"]}}}, "anchors.tasks: found .*, family clip allows"),
        ("ataf", {"data": {"clients": 3}}, "data.clients: found 3 in a round; ataf allows 2 exactly"),
        ("anchored", {"method": {"family": "mllm"}}, "Input should be 'clip'"),
        ("ataf", {"method": {"alpha": 1.5}}, "less than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused(name: str, sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        config(name, **sections)


def test_ataf_refuses_other_than_two(clip: Any, tmp_path: Path) -> None:
    loop, _ = federation(config("ataf"), clip, tmp_path)
    one = updates(loop.method, clip, loop.clients)[:1]
    with pytest.raises(ValueError, match="clients: 1 updates to merge, ataf fuses exactly 2"):
        loop.method.combine({}, one, ServerContext(clip, loop.clients, 0, 1, 0))


def test_anchors_that_are_not_there_stop_the_run_before_it_trains(tmp_path: Path, capsys: Any) -> None:
    anchors = {"source": "folder", "path": str(tmp_path / "none"), "count": 4}
    path = yaml_file(tmp_path, "sap", method={"anchors": anchors})
    assert main(["--config", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "anchors.path" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("exchange/train-*"))
