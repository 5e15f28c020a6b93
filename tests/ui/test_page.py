"""The page as its users meet it: the real page, the real gateway, the real engine."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from tests.serve.artefacts import publish_lora, publish_prompt
from tests.serve.fixtures import MAX_TOKENS
from tests.serve.live import LiveGateway, data_url, noise

QUESTION = "What is in the picture?"


def refusal(visitor: Client, *values: object, api_name: str) -> str:
    with pytest.raises(AppError) as refused:
        visitor.predict(*values, api_name=api_name)
    return str(refused.value)


def ask_all(visitor: Client, *values: object) -> list[tuple[str, str]]:
    return list(visitor.submit(*values, api_name="/ask"))  # a job's result() comes with the first piece, not the last


def test_a_key_opens_its_own_clients_and_another_none(visitor: Client, gateway: LiveGateway) -> None:
    assert "not known" in refusal(visitor, "wrong", api_name="/login")
    assert "Type your key first" in refusal(visitor, " ", api_name="/login")
    key_field, choice = visitor.predict(gateway.key("ann", "cat"), api_name="/login")
    assert key_field == ""
    assert [value for _, value in choice["choices"]] == ["ann", "cat"]
    assert "**ann** answers questions" in visitor.predict("ann", api_name="/choose")[0]
    assert "**cat** sorts pictures" in visitor.predict("cat", api_name="/choose")[0]


def test_what_the_drop_down_says_is_not_believed(visitor: Client, gateway: LiveGateway, picture: Path) -> None:
    visitor.predict(gateway.key("ann"), api_name="/login")
    for client in ("bob", "cat", "ann@0000", "../ann", "", None, ["ann"]):
        assert "Your key does not allow client" in refusal(visitor, client, api_name="/choose")
        assert "does not allow" in refusal(visitor, client, handle_file(picture), QUESTION, api_name="/ask")
        assert "does not allow" in refusal(visitor, client, handle_file(picture), api_name="/classify")


def test_nobody_asks_before_the_log_in_or_after_the_log_out(
    visitor: Client, gateway: LiveGateway, picture: Path
) -> None:
    assert "Log in" in refusal(visitor, "ann", None, QUESTION, api_name="/ask")
    visitor.predict(gateway.key("ann"), api_name="/login")
    ask_all(visitor, "ann", None, QUESTION)
    visitor.predict(api_name="/logout")
    assert "Log in" in refusal(visitor, "ann", None, QUESTION, api_name="/ask")
    assert "Log in" in refusal(visitor, "ann", {"path": str(picture)}, api_name="/classify")
    with pytest.raises(httpx.HTTPStatusError, match="401"):  # nor does the page take a file
        visitor.predict("ann", handle_file(picture), api_name="/classify")


def test_an_answer_streams_in_and_is_the_gateways_with_its_version(
    visitor: Client, gateway: LiveGateway, picture: Path
) -> None:
    visitor.predict(gateway.key("ann", "bob"), api_name="/login")
    answers = {}
    for client in ("ann", "bob"):
        pieces = ask_all(visitor, client, handle_file(picture), QUESTION)
        texts = [text for text, _ in pieces]
        assert len(pieces) > 3
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
        whole = gateway.ask(client, QUESTION, noise(3), max_tokens=MAX_TOKENS)
        assert texts[-1] == whole["choices"][0]["message"]["content"]
        version = gateway.store.live(client).version
        assert pieces[-1][1] == f"{client}@{version} over base {whole['fedtailor']['base']}"
        answers[client] = texts[-1]
    assert answers["ann"] != answers["bob"]


def test_a_picture_is_sorted_into_the_clients_classes(visitor: Client, gateway: LiveGateway, picture: Path) -> None:
    visitor.predict(gateway.key("cat"), api_name="/login")
    shown, source, experts = visitor.predict("cat", handle_file(picture), api_name="/classify")
    with gateway.http() as http:
        body = {"model": "cat", "image": data_url(noise(3))}
        top = http.post("/v1/classify", json=body).json()["top"]
    assert [c["label"] for c in shown["confidences"]] == [entry["class_name"] for entry in top]
    assert [c["confidence"] for c in shown["confidences"]] == pytest.approx([entry["probability"] for entry in top])
    assert source.startswith(f"cat@{gateway.store.live('cat').version}")
    assert not experts["visible"]


def test_a_client_with_both_families_has_both_views_each_with_its_version(
    visitor: Client, gateway: LiveGateway, picture: Path
) -> None:
    chatting, sorting = publish_lora(gateway.store, "lea", 62), publish_prompt(gateway.store, "lea", 63)
    with gateway.http() as http:
        assert http.post("/v1/admin/reload").status_code == 200
    visitor.predict(gateway.key("lea"), api_name="/login")
    assert visitor.predict("lea", api_name="/choose")[0] == (
        f"**lea** answers questions (version `{chatting}`) and sorts pictures into its classes (version `{sorting}`)"
    )
    assert ask_all(visitor, "lea", handle_file(picture), QUESTION)[-1][1].startswith(f"lea@{chatting} ")
    assert visitor.predict("lea", handle_file(picture), api_name="/classify")[1].startswith(f"lea@{sorting} ")


def test_a_gated_model_shows_the_prompts_behind_its_answer(
    visitor: Client, gateway: LiveGateway, picture: Path
) -> None:
    visitor.predict(gateway.key("dot"), api_name="/login")
    _, _, shown = visitor.predict("dot", handle_file(picture), api_name="/classify")
    with gateway.http() as http:
        experts = http.post("/v1/classify", json={"model": "dot", "image": data_url(noise(3))}).json()["experts"]
    assert shown["visible"]
    confidences = {one["label"]: one["confidence"] for one in shown["value"]["confidences"]}
    assert confidences == pytest.approx({one["id"]: one["weight"] for one in experts})
    assert "own" in confidences


def test_each_mistake_is_a_sentence(visitor: Client, gateway: LiveGateway, picture: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    visitor.predict(gateway.key("ann", "cat"), api_name="/login")
    said = {
        "Type a question first": ("ann", handle_file(picture), "  "),
        "longer than 4000 characters": ("ann", None, "why " * 1001),
        "is reserved": ("ann", None, "What is <image>?"),
        "use /v1/classify": ("cat", handle_file(picture), QUESTION),
        "not an image": ("ann", handle_file(tmp_path / "text.png"), QUESTION),
    }
    for sentence, values in said.items():
        assert sentence in refusal(visitor, *values, api_name="/ask")
    assert "Choose a picture first" in refusal(visitor, "cat", None, api_name="/classify")
    assert "has no classes" in refusal(visitor, "ann", handle_file(picture), api_name="/classify")


def test_two_visitors_do_not_share_a_log_in(page: str, gateway: LiveGateway) -> None:
    first, second = Client(page, verbose=False), Client(page, verbose=False)
    first.predict(gateway.key("ann"), api_name="/login")
    second.predict(gateway.key("bob"), api_name="/login")
    assert "**ann**" in first.predict("ann", api_name="/choose")[0]
    assert "does not allow client 'bob'" in refusal(first, "bob", api_name="/choose")
    assert "does not allow client 'ann'" in refusal(second, "ann", api_name="/choose")


def call(page: str, api_name: str, session: str, *values: object) -> str:
    """Everything the server sends back for one event, as a browser would receive it."""
    with httpx.Client(base_url=page, timeout=60) as http:
        config = http.get("/config").json()
        number = next(d["id"] for d in config["dependencies"] if d["api_name"] == api_name)
        data: dict[str, Any] = {"data": values, "fn_index": number, "session_hash": session}
        joined = http.post("/gradio_api/queue/join", json=data)
        joined.raise_for_status()
        return json.dumps(config) + http.get("/gradio_api/queue/data", params={"session_hash": session}).text


def test_the_key_never_comes_back_and_no_file_of_the_server_is_read(page: str, gateway: LiveGateway) -> None:
    key = gateway.key("ann")
    received = call(page, "login", "by-hand", key) + call(page, "choose", "by-hand", None, "ann")
    assert '"success": true' in received.lower() or '"success":true' in received.lower()
    assert "ann" in received
    assert key not in received
    stolen = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    received = call(page, "ask", "by-hand", None, "ann", stolen, QUESTION)
    assert '"success":false' in received.replace(" ", "").lower()
    assert "root:" not in received
