"""The routes over a gateway without an engine: who may ask, what is refused and how, and classification."""

import asyncio
import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from adapters_store.personal.clip import load_clip
from adapters_store.personal.prompt import PromptedText
from adapters_store.pictures.pixels import to_pixels
from adapters_store.store import Store
from serve.app import create_app
from serve.http.auth import Keys
from serve.settings import Settings
from tests.floats import check_probabilities
from tests.serve.artefacts import CLASSES, CLIP, PROMPT_VECTORS, publish_lora, publish_prompt
from tests.serve.in_process import serving
from tests.serve.live import data_url, noise, png

ASKED = {"model": "cat", "messages": [{"role": "user", "content": "what?"}]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two clients that classify, and one that would chat if there were an engine."""
    store = Store(tmp_path_factory.mktemp("app") / "store")
    publish_prompt(store, "cat", seed=1)
    publish_prompt(store, "dan", seed=2)
    publish_lora(store, "ann", seed=0)
    return store


@pytest.fixture(scope="module")
def app(store: Store) -> Iterator[TestClient]:
    """The application, ready."""
    settings = Settings(store=store.root, base=None, clip=CLIP, max_body_bytes=200_000, watch_interval_s=0.05)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        while client.get("/readyz").status_code != 200:
            pass
        yield client


def bearer(store: Store, *clients: str, admin: bool = False) -> dict[str, str]:
    """The header of a new key."""
    return {"Authorization": f"Bearer {Keys(store.root).add(list(clients), admin)}"}


def refusal(answer: httpx.Response, status: int) -> str:
    """The sentence of an answer that must be OpenAI's error object."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["message"])


def test_alive_and_ready_need_no_key(app: TestClient) -> None:
    assert app.get("/healthz").json() == {"status": "alive"}
    assert app.get("/readyz").json() == {
        "ready": True,
        "engine": "none",
        "clients": 3,
        "answering": 2,
        "refused": 1,  # ann would chat, if there were an engine
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/cat"),
        ("GET", "/v1/clients/cat"),
        ("POST", "/v1/classify"),
        ("GET", "/metrics"),
        ("POST", "/v1/admin/reload"),
        ("POST", "/v1/chat/completions"),
    ],
)
def test_everything_else_needs_one(app: TestClient, method: str, path: str) -> None:
    answer = app.request(method, path, json=ASKED if method == "POST" else None)
    assert "API key" in refusal(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    refusal(app.request(method, path, headers={"Authorization": "Bearer ft-wrong"}, content=b"{half"), 401)


def test_a_key_sees_and_opens_only_its_clients(app: TestClient, store: Store) -> None:
    mine = bearer(store, "cat")
    assert [model["id"] for model in app.get("/v1/models", headers=mine).json()["data"]] == ["cat"]
    assert app.get("/v1/models/cat", headers=mine).json()["id"] == "cat"
    refusal(app.get("/v1/models/dan", headers=mine), 404)
    refusal(app.get("/v1/clients/dan", headers=mine), 404)
    image = data_url(noise(0))
    assert app.post("/v1/classify", headers=mine, json={"model": "cat", "image": image}).status_code == 200
    assert "'dan'" in refusal(app.post("/v1/classify", headers=mine, json={"model": "dan", "image": image}), 404)
    version = store.versions("dan")[0]
    refusal(app.post("/v1/classify", headers=mine, json={"model": f"dan@{version}", "image": image}), 404)


def test_what_is_not_mine_looks_as_if_there_were_none(app: TestClient, store: Store) -> None:
    """Byte for byte but for the name, which is as long as the other."""
    mine, version = bearer(store, "cat"), store.versions("dan")[0]

    def told(name: str) -> list[tuple[int, str, dict[str, str]]]:
        image = data_url(noise(0))
        answers = [
            app.get(f"/v1/clients/{name}", headers=mine),
            app.get(f"/v1/models/{name}", headers=mine),
            *(
                app.post(path, headers=mine, json=body | {"model": model})
                for model in (name, f"{name}@{version}", f"{name}@")
                for path, body in (("/v1/classify", {"image": image}), ("/v1/chat/completions", ASKED))
            ),
        ]
        return [(one.status_code, one.text.replace(name, "…"), dict(one.headers)) for one in answers]

    assert told("dan") == told("nix") == told("ann")
    assert {status for status, *_ in told("dan")} == {404}


def test_login_says_what_a_key_opens(app: TestClient, store: Store) -> None:
    key = bearer(store, "dan", "cat")["Authorization"].removeprefix("Bearer ")
    assert app.post("/v1/login", json={"key": key}).json() == {"clients": ["cat", "dan"], "admin": False}
    admin = bearer(store, admin=True)["Authorization"].removeprefix("Bearer ")
    assert app.post("/v1/login", json={"key": admin}).json() == {"clients": ["ann", "cat", "dan"], "admin": True}
    refusal(app.post("/v1/login", json={"key": "ft-wrong"}), 401)


@pytest.mark.parametrize("model", ["nobody", "../cat", "cat/../dan", "/etc/passwd", "Cat", "", "cat@0123456789abcdef",
                                   "cat@../dan", "cat@..", "global"])  # fmt: skip
def test_unknown_models_are_404(app: TestClient, store: Store, model: str) -> None:
    for headers in (bearer(store, "cat"), bearer(store, admin=True)):
        refusal(app.post("/v1/classify", headers=headers, json={"model": model, "image": data_url(noise(0))}), 404)


@pytest.mark.parametrize("path", ["/v1/clients/nobody", "/v1/clients/..%2F..%2Fetc", "/v1/clients/%2e%2e", "/nothing"])
def test_unknown_paths_are_404(app: TestClient, store: Store, path: str) -> None:
    refusal(app.get(path, headers=bearer(store, admin=True)), 404)


def test_administration_needs_an_admin_key(app: TestClient, store: Store) -> None:
    for method, path in (("GET", "/metrics"), ("POST", "/v1/admin/reload")):
        assert "admin key" in refusal(app.request(method, path, headers=bearer(store, "cat")), 403)
        assert app.request(method, path, headers=bearer(store, admin=True)).status_code == 200


def test_metrics_are_per_client_and_bounded(app: TestClient, store: Store) -> None:
    admin = bearer(store, admin=True)
    app.post("/v1/classify", headers=admin, json={"model": "cat", "image": data_url(noise(0))})
    app.get("/made/up/by/a/stranger")
    text = app.get("/metrics", headers=admin).text
    assert 'fedtailor_requests_total{client="cat",route="/v1/classify",status="200"}' in text
    assert "stranger" not in text


@pytest.mark.numeric
def test_classification_is_the_prompt_on_the_base(app: TestClient, store: Store) -> None:
    answer = app.post(
        "/v1/classify", headers=bearer(store, "cat"), json={"model": "cat", "image": data_url(noise(3)), "top_k": 3}
    )
    body = answer.json()
    version = store.versions("cat")[0]
    assert body["model"] == f"cat@{version}"
    assert body["fedtailor"] == {"client": "cat", "version": version, "base": body["fedtailor"]["base"]}
    assert answer.headers["x-fedtailor-version"] == version
    expected = plain_probabilities(store, "cat", noise(3))
    check_probabilities({top["class_name"]: top["probability"] for top in body["top"]}, expected)
    assert body["top"] == sorted(body["top"], key=lambda top: -top["probability"])


def plain_probabilities(store: Store, client: str, image: Any) -> dict[str, float]:
    """Class probabilities computed in one go, without anything of the gateway."""
    from safetensors.torch import load_file

    artefact = store.artefact(client, store.versions(client)[0])
    clip = load_clip(CLIP)
    prompt = load_file(artefact.path / "prompt.safetensors")["prompt"]
    with torch.inference_mode():
        text = PromptedText(clip, CLASSES, artefact.manifest.prompt_template, PROMPT_VECTORS).features(prompt)
        features = clip.image_features(to_pixels(Image.fromarray(image), artefact.manifest.image_transform)[None])[0]
        probabilities = (clip.logit_scale * (text @ features)).softmax(0)
    return dict(zip(CLASSES, probabilities.tolist(), strict=True))


def test_a_form_and_a_data_url_give_the_same(app: TestClient, store: Store) -> None:
    headers = bearer(store, "cat")
    by_url = app.post("/v1/classify", headers=headers, json={"model": "cat", "image": data_url(noise(4)), "top_k": 2})
    by_form = app.post(
        "/v1/classify",
        headers=headers,
        data={"model": "cat", "top_k": "2"},
        files={"image": ("x.png", png(noise(4)), "image/png")},
    )
    assert by_form.json() == by_url.json()
    assert len(by_url.json()["top"]) == 2


def test_a_window_shows_what_a_picture_of_more_bits_holds(app: TestClient, store: Store) -> None:
    file = io.BytesIO()
    Image.fromarray(noise(4)[..., 0].astype(np.uint16) * 16).save(file, "PNG")
    seen = {"image": "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(), "window": [2040, 4080]}
    headers, asked = bearer(store, "cat"), {"model": "cat", "top_k": 3}
    grey = {"image": data_url(np.repeat(noise(4)[..., :1], 3, axis=2))}
    as_eight_bits = app.post("/v1/classify", headers=headers, json=asked | grey).json()["top"]
    assert app.post("/v1/classify", headers=headers, json=asked | seen).json()["top"] == as_eight_bits
    form = {"data": asked | {"window": ["2040", "4080"]}, "files": {"image": ("x.png", file.getvalue(), "image/png")}}
    assert app.post("/v1/classify", headers=headers, **form).json()["top"] == as_eight_bits  # type: ignore[arg-type]
    dark = app.post("/v1/classify", headers=headers, json=asked | {"image": seen["image"]}).json()["top"]
    assert dark != as_eight_bits


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"model": "cat"}, "field 'image' is missing"),
        ({"model": "cat", "image": data_url(noise(1)), "window": [1, 2]}, "a window is for greyscale pictures"),
        ({"model": "cat", "image": data_url(noise(1)), "window": [1, 0]}, "field 'window.1'"),
        ({"model": "cat", "image": "http://127.0.0.1/x.png"}, "must be a data URL"),
        ({"model": "cat", "image": "data:image/png;base64,AAAA"}, "not an image"),
        ({"model": "cat", "image": "data:image/png;base64,AAAA", "top_k": 0}, "'top_k'"),
        ({"model": "cat", "image": "data:image/png;base64,AAAA", "uuid": "x"}, "field 'uuid' is not supported"),
    ],
)
def test_classification_requests_at_fault(app: TestClient, store: Store, body: dict[str, Any], reason: str) -> None:
    assert reason in refusal(app.post("/v1/classify", headers=bearer(store, "cat"), json=body), 400)


def test_broken_bodies(app: TestClient, store: Store) -> None:
    headers = bearer(store, "cat") | {"content-type": "application/json"}
    for path in ("/v1/classify", "/v1/chat/completions"):
        assert "JSON" in refusal(app.post(path, headers=headers, content=b"{half"), 400)
    form = app.post("/v1/classify", headers=bearer(store, "cat"), data={"model": "cat"}, files={"other": b"x"})
    assert "field 'image'" in refusal(form, 400)


def test_whoever_has_no_key_sends_little(app: TestClient, store: Store) -> None:
    assert "4096 bytes" in refusal(app.post("/v1/login", json={"key": "x" * 5000}), 413)
    pieces = (b"x" * 1000 for _ in range(6))
    assert "4096 bytes" in refusal(app.post("/v1/login", content=pieces), 413)
    asked: list[bytes] = []

    def body() -> Iterator[bytes]:
        for _ in range(20):
            asked.append(b"x" * 10_000)
            yield asked[-1]

    refusal(app.post("/v1/classify", content=body()), 401)
    refusal(app.post("/v1/chat/completions", headers={"Authorization": "Bearer ft-wrong"}, content=body()), 401)
    assert not asked  # not a byte of it was read


def test_large_bodies_are_413_announced_or_not(app: TestClient, store: Store) -> None:
    headers = bearer(store, "cat") | {"content-type": "application/json"}
    large = b'{"model": "' + b"x" * 300_000 + b'"}'
    assert "larger than" in refusal(app.post("/v1/classify", headers=headers, content=large), 413)
    pieces = (large[i : i + 1000] for i in range(0, len(large), 1000))
    assert "larger than" in refusal(app.post("/v1/classify", headers=headers, content=pieces), 413)


def test_one_keys_flood_is_told_to_come_back(store: Store) -> None:
    """And another key's request, which came last, is answered."""
    image = data_url(noise(0))

    async def flood() -> list[httpx.Response]:
        async with serving(store, max_in_flight=2, max_waiting=4) as http:
            asked = [(bearer(store, "cat"), "cat")] * 40 + [(bearer(store, "dan"), "dan")]
            return await asyncio.gather(
                *(http.post("/v1/classify", headers=h, json={"model": m, "image": image}) for h, m in asked)
            )

    *answers, other = asyncio.run(flood())
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 429)
    assert other.status_code == 200


def test_a_client_that_classifies_does_not_chat(app: TestClient, store: Store) -> None:
    assert "use /v1/classify" in refusal(
        app.post("/v1/chat/completions", headers=bearer(store, "cat"), json=ASKED), 400
    )


def test_a_version_of_another_family_is_refused_with_a_reason(app: TestClient, store: Store) -> None:
    answer = app.post("/v1/chat/completions", headers=bearer(store, "ann"), json=ASKED | {"model": "ann"})
    assert "no base of family 'mllm'" in refusal(answer, 503)
    assert int(answer.headers["retry-after"]) > 0


def test_a_new_prompt_is_followed(app: TestClient, store: Store) -> None:
    headers = bearer(store, "dan")
    before = app.get("/v1/clients/dan", headers=headers).json()
    version = publish_prompt(store, "dan", seed=99)
    while (after := app.get("/v1/clients/dan", headers=headers).json())["answering"] != version:
        pass
    assert before["answering"] != version
    assert after["live"] == version
    assert [entry["version"] for entry in after["versions"]][-1] == version
    assert after["versions"][-1]["report"]["seed"] == 99
    image = data_url(noise(5))
    for name in (before["answering"], version):
        answer = app.post("/v1/classify", headers=headers, json={"model": f"dan@{name}", "image": image}).json()
        assert answer["fedtailor"]["version"] == name


def test_a_damaged_pointer_keeps_the_version_that_answers(app: TestClient, store: Store, tmp_path: Path) -> None:
    pointer = store.root / "cat/live-clip.json"
    sound = pointer.read_bytes()
    pointer.write_bytes(b"{")
    try:
        admin = bearer(store, admin=True)
        assert app.post("/v1/admin/reload", headers=admin).status_code == 200
        answer = app.post("/v1/classify", headers=admin, json={"model": "cat", "image": data_url(noise(0))})
        assert answer.status_code == 200
    finally:
        pointer.write_bytes(sound)


def test_a_store_that_others_could_read_is_closed_to_them_when_it_is_served(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    publish_prompt(store, "cat", seed=1)
    opened = [store.root, *store.root.rglob("*")]
    for path in opened:
        path.chmod(0o755)
    with TestClient(create_app(Settings(store=store.root, base=None, clip=CLIP))):
        pass
    assert {path.stat().st_mode & 0o077 for path in opened} == {0}
