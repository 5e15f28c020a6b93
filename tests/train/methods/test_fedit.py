"""FedIT's own: what its aggregation error means, and that its LoRA files are PEFT's."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel

from adapters_store.paths import resolve
from adapters_store.personal.connector import CONNECTOR, PARTS
from tests.floats import LLAVA_LOGITS, check_close
from tests.train.small import config, federation
from train.methods.contract import ClientInfo, ServerContext, Update
from train.methods.fedit import FedIT, FedITOptions
from train.models.lora import LoraOptions, LoraPersonal
from train.models.mllm import Mllm, load_llava
from train.tensors import Tensors, from_bytes, read

pytestmark = pytest.mark.numeric

A, B = "x.lora_A.weight", "x.lora_B.weight"


def update(client: str, a: list[list[float]], b: list[list[float]], examples: int = 1) -> Update:
    return Update(client, examples, {A: torch.tensor(a), B: torch.tensor(b)})


def error(updates: list[Update]) -> float:
    method = FedIT(FedITOptions())
    combined = method.combine({}, updates, ServerContext(None, [], 0, 1, 0))  # type: ignore[arg-type]
    return method.diagnose(combined, updates)["aggregation_error"]


def test_aggregation_error_of_two_clients_by_hand() -> None:
    """A = 1, −1 and B = 1, −1: both products are 1, so U = 1, but Ā = B̄ = 0: everything is lost."""
    assert error([update("ann", [[1.0]], [[1.0]]), update("bob", [[-1.0]], [[-1.0]])]) == pytest.approx(1.0)


def test_no_error_where_all_share_one_factor() -> None:
    shared = [[1.0, 2.0]]
    assert error([update("ann", shared, [[1.0], [3.0]], 3), update("bob", shared, [[-2.0], [0.5]])]) < 1e-6


def random_state(method: FedIT, mllm: Mllm) -> Tensors:
    start = method.initial(mllm, [], 3)
    random = torch.Generator().manual_seed(1)
    return {name: 0.05 * torch.randn(value.shape, generator=random) for name, value in start.items()}


def test_a_published_lora_is_plain_peft(mllm: Mllm, tmp_path: Path) -> None:
    method = FedIT(FedITOptions())
    state = random_state(method, mllm)
    for name, data in method.publish(mllm, ClientInfo("ann", 1), state).files.items():
        (tmp_path / name).write_bytes(data)
    fresh = load_llava(resolve("bases/tiny/llava"), load_in_4bit=True, dtype=torch.float32)
    peft = PeftModel.from_pretrained(fresh, tmp_path)
    ids = torch.tensor([[1, 9, 30, 31, 32]])
    with torch.no_grad():
        served = peft(input_ids=ids).logits
        LoraPersonal(mllm, LoraOptions(), state)
        trained = mllm.model(input_ids=ids).logits
    torch.testing.assert_close(served, trained, rtol=0, atol=0)
    assert all("language_model" in name for name in state)


def test_another_rank_replaces_the_adapter(mllm: Mllm) -> None:
    """Runs of different shapes in one process must not stack adapters on the base."""
    ids = torch.tensor([[1, 9, 30, 31, 32]])
    plain = load_llava(resolve("bases/tiny/llava"), load_in_4bit=True, dtype=torch.float32)
    for rank in (4, 8):
        method = FedIT(FedITOptions(lora=LoraOptions(rank=rank)))
        method.build(mllm, ClientInfo("ann", 1), random_state(method, mllm), None)
    assert config("fedit").method.name == "fedit"
    method = FedIT(FedITOptions())
    method.build(mllm, ClientInfo("ann", 1), method.initial(mllm, [], 3), None)  # B = 0: the base
    with torch.no_grad():
        check_close(mllm.model(input_ids=ids).logits, plain(input_ids=ids).logits, LLAVA_LOGITS)


def test_with_a_connector_the_projector_is_trained_averaged_and_published(mllm: Mllm, tmp_path: Path) -> None:
    loop, _ = federation(config("fedit", method={"connector": True}), mllm, tmp_path)
    shared = loop.method.publish_global(mllm, loop.clients, loop._round(1, None).server)
    average = from_bytes(shared.files[CONNECTOR])
    sent = [read(path) for path in sorted((tmp_path / "exchange" / "train-0001-0" / "up").glob("*.safetensors"))]
    start = dict(zip(PARTS, mllm.projector_adapter(), strict=True))
    for part, projector in start.items():
        name = f"experts.0.task.{part}"
        assert not torch.equal(average[name], projector)
        torch.testing.assert_close(average[name], (sent[0][name] + sent[1][name]) / 2)
