"""Clients with connectors of their own through the real gateway and engine, in flight together."""

from tests.serve.artefacts import Tensors, connector_tensors, publish_lora
from tests.serve.chat.test_connectors import NARROW
from tests.serve.live import LiveGateway, noise
from tests.serve.parity import check_parity_together
from tests.serve.versions.test_hot_load import refused, says

QUESTIONS = ["what color is the circle?", "how many squares are there?", "where is the triangle?", "describe this."]


def publish(gateway: LiveGateway, client: str, seed: int, connector: Tensors | None) -> str:
    """A version of the client that answers when this returns."""
    version = publish_lora(gateway.store, client, seed, connector=connector)
    gateway.wait_for(client, version)
    return version


def test_greedy_answers_of_clients_in_flight_together_equal_transformers_peft_and_connector(
    gateway: LiveGateway,
) -> None:
    clients = {"kim": 0, "lea": 1, "moe": 1}  # and their tasks
    for seed, (client, task) in enumerate(clients.items(), 50):
        publish(gateway, client, seed, connector_tensors(seed, task))
    asked = [(noise(seed), question) for seed, question in enumerate(QUESTIONS)]
    check_parity_together(gateway, gateway.store, dict.fromkeys((*clients, "ann"), asked))


def test_a_connector_comes_over_the_bases_projector_and_goes_again(gateway: LiveGateway) -> None:
    """One LoRA: what differs is the connector alone."""
    plain = publish(gateway, "ned", 60, None)
    before = says(gateway, "ned")
    own = publish(gateway, "ned", 60, connector_tensors(60))
    after = says(gateway, "ned")
    assert (before[0], after[0]) == (plain, own)
    assert before[1] != after[1]
    other = publish(gateway, "ned", 60, connector_tensors(61))
    assert says(gateway, "ned")[1] not in (before[1], after[1])
    assert says(gateway, f"ned@{plain}") == before
    gateway.store.rollback("ned")
    gateway.wait_for("ned", own)
    assert says(gateway, "ned") == after
    assert other not in refused(gateway, "ned")


def test_one_that_does_not_fit_is_refused_and_the_version_before_it_answers(gateway: LiveGateway) -> None:
    good = publish(gateway, "ola", 62, connector_tensors(62))
    before = says(gateway, "ola")
    wrong = publish_lora(gateway.store, "ola", 63, connector=NARROW)
    assert "connector.safetensors takes features of width 184" in refused(gateway, "ola")[wrong]
    assert says(gateway, "ola") == before
    assert before[0] == good


def test_what_connectors_cost_is_told(gateway: LiveGateway) -> None:
    publish(gateway, "pam", 64, connector_tensors(64))
    says(gateway, "pam")
    with gateway.http() as http:
        lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines["fedtailor_connector_bytes"]) > 2**20
    assert float(lines["fedtailor_connector_reads_total"]) >= 1
    for part in ("features", "connectors"):
        assert float(lines[f'fedtailor_soft_token_seconds_count{{part="{part}"}}']) >= 1
