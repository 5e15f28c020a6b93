"""Versions published, withdrawn and damaged while the real engine runs."""

import numpy as np
from safetensors.torch import load, save

from adapters_store.store import Store
from tests.serve.artefacts import lora_files, lora_manifest, publish_lora
from tests.serve.live import LiveGateway, noise

QUESTION = "what color is the circle?"


def says(gateway: LiveGateway, model: str) -> tuple[str, list[int]]:
    """The version that answers, and its tokens."""
    answer = gateway.ask(model, QUESTION, noise(0), return_token_ids=True)
    return answer["fedtailor"]["version"], answer["choices"][0]["token_ids"]


def refused(gateway: LiveGateway, client: str) -> dict[str, str]:
    """What the gateway refuses of a client, after it looked again."""
    with gateway.http() as http:
        assert http.post("/v1/admin/reload").status_code == 200
        found: dict[str, str] = http.get(f"/v1/clients/{client}").json()["refused"]
    return found


def test_a_client_appears_changes_and_goes_back_without_a_restart(gateway: LiveGateway) -> None:
    store = Store(gateway.store.root)
    first = publish_lora(store, "eve", 10)
    seconds = gateway.wait_for("eve", first)
    assert seconds < 5
    before = says(gateway, "eve")
    second = publish_lora(store, "eve", 11)
    gateway.wait_for("eve", second)
    after = says(gateway, "eve")
    assert (before[0], after[0]) == (first, second)
    assert before[1] != after[1]
    assert says(gateway, f"eve@{first}") == before
    assert says(gateway, f"eve@{second}") == after
    store.rollback("eve")
    gateway.wait_for("eve", first)
    assert says(gateway, "eve") == before  # and not the other version's cached attention


def test_damage_on_disk_leaves_the_old_version_answering(gateway: LiveGateway) -> None:
    store = Store(gateway.store.root)
    good = publish_lora(store, "fay", 20)
    gateway.wait_for("fay", good)
    bad = publish_lora(store, "fay", 21, activate=False)
    file = store.root / "fay" / bad / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-64] + b"\xff" * 64)
    pointer = store.root / "fay/live-mllm.json"
    pointer.write_text(pointer.read_text().replace(good, bad))
    assert "damaged" in refused(gateway, "fay")[bad]
    assert says(gateway, "fay")[0] == good


def test_shapes_of_another_model_are_refused_and_harm_nobody(gateway: LiveGateway) -> None:
    """The engine itself would take them, in a corner of its own matrices."""
    files = lora_files(30)
    tensors = load(files["adapter_model.safetensors"])
    cut = {name: t[:, :-8] if ".lora_A." in name else t for name, t in tensors.items()}
    files["adapter_model.safetensors"] = save({name: t.contiguous() for name, t in cut.items()})
    wrong = gateway.store.publish(lora_manifest("gus"), files, {}, activate=True)
    assert "where the base needs" in refused(gateway, "gus")[wrong]
    with gateway.http() as http:
        body = {"model": "gus", "messages": [{"role": "user", "content": "hm?"}]}
        answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 503
        assert wrong in answer.json()["error"]["message"]
        assert http.get("/readyz").status_code == 200
    assert says(gateway, "ann")[1]


def test_numbers_that_overflow_are_refused_by_the_probe_and_harm_nobody(gateway: LiveGateway) -> None:
    before = says(gateway, "ann")
    files = lora_files(31, size=1e30)  # finite on disk, infinite once multiplied
    wrong = gateway.store.publish(lora_manifest("hal"), files, {}, activate=True)
    assert wrong in refused(gateway, "hal")
    assert says(gateway, "ann") == before


def test_an_engine_adapter_is_named_by_its_content(gateway: LiveGateway) -> None:
    """The engine caches attention by adapter name, and serves it on after other bytes were loaded under that name."""
    seeds = [40, 41, 40]
    answers = []
    for seed in seeds:
        version = publish_lora(gateway.store, "ida", seed)
        gateway.store.activate("ida", version)
        gateway.wait_for("ida", version)
        answers.append(says(gateway, "ida"))
    assert answers[0] == answers[2]
    assert answers[0] != answers[1]
    assert np.unique([version for version, _ in answers]).size == 2
