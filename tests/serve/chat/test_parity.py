"""Train/serve parity on random adapters; the published ones are compared by the acceptance tests."""

import pytest

from tests.serve.live import LiveGateway, noise
from tests.serve.parity import MAX_TOKENS, check_but_for_ties, check_parity, reference

QUESTIONS = [
    "what color is the circle?",
    "how many squares are there?",
    "describe the picture.",
    "is there a red star?",
    "where is the triangle?",
]


@pytest.mark.parametrize("client", ["ann", "global"])
def test_greedy_answers_equal_transformers_and_peft(gateway: LiveGateway, client: str) -> None:
    questions = [(noise(seed), QUESTIONS[seed % len(QUESTIONS)]) for seed in range(10)]
    check_parity(gateway, gateway.store, client, questions)


def test_parity_is_not_vacuous(gateway: LiveGateway) -> None:
    question = (noise(0), QUESTIONS[0])
    live = gateway.store.live("bob")
    assert live is not None
    said = {
        model: gateway.ask(model, question[1], question[0], max_tokens=MAX_TOKENS, return_token_ids=True)
        for model in ("ann", "bob", "base")
    }
    tokens = {model: tuple(answer["choices"][0]["token_ids"]) for model, answer in said.items()}
    assert len(set(tokens.values())) == 3
    wanted = reference(gateway.store, "bob", live.version).answer(question)
    check_but_for_ties(gateway, "bob", question, list(tokens["bob"]), wanted)


def test_base_equals_the_adapter_free_model(gateway: LiveGateway) -> None:
    live = gateway.store.live("ann")
    assert live is not None
    expected = reference(gateway.store, "ann", live.version)
    question = (noise(3), QUESTIONS[2])
    with expected.model.disable_adapter():
        wanted = expected.answer(question)
    served = gateway.ask("base", question[1], question[0], max_tokens=MAX_TOKENS, return_token_ids=True)
    check_but_for_ties(gateway, "base", question, served["choices"][0]["token_ids"], wanted)
