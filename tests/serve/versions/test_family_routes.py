"""A client with a live version of each family: either answers its own route, whatever becomes of the other."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from adapters_store.bases.frozen import base_id
from adapters_store.store import Store
from adapters_store.versions.manifest import Family
from serve.app import create_app
from serve.errors import GatewayError
from serve.settings import Settings
from serve.versions.follow import Adapters
from tests.serve.artefacts import CLIP, publish_lora, publish_prompt
from tests.serve.live import LiveGateway, data_url, noise
from tests.serve.test_app import ASKED, bearer, refusal
from tests.serve.versions.test_adapters import FakeEngine, gateway_over

Scenario = Callable[[Store, FakeEngine, FakeEngine, Adapters], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario over an empty store, an engine and what stands where the dual encoder would."""

    def run(scenario: Scenario) -> None:
        store, engine, encoder = Store(tmp_path / "store"), FakeEngine(), FakeEngine()
        encoder.base_id, encoder.max_rank = base_id(CLIP, None), None
        adapters = gateway_over(store, {"mllm": engine, "clip": encoder}, tmp_path)
        asyncio.run(scenario(store, engine, encoder, adapters))

    return run


async def says(adapters: Adapters, model: str, family: Family) -> str:
    """The version that answers, or the sentence with which it does not."""
    client, _, version = model.partition("@")
    try:
        resident = await adapters.lease(client, family, version or None)
    except GatewayError as error:
        return f"{error.status} {error.message}"
    resident.release()
    return resident.subject.version


@pytest.mark.parametrize("client", ["ann", "global"])
def test_either_version_answers_its_own_route(play: Callable[[Scenario], None], client: str) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        chatting = publish_lora(store, client, 1)
        await adapters.sync()
        wrong = f"400 model '{client}' chats and has no classes: use /v1/chat/completions"
        assert await says(adapters, client, "clip") == wrong
        sorting = publish_prompt(store, client, 2)
        await adapters.sync()
        for name in (client, f"{client}@{chatting}"):
            assert await says(adapters, name, "mllm") == chatting
        for name in (client, f"{client}@{sorting}"):
            assert await says(adapters, name, "clip") == sorting
        assert await says(adapters, f"{client}@{chatting}", "clip") == wrong.replace(client, f"{client}@{chatting}")
        other = f"400 model '{client}@{sorting}' names images and does not chat: use /v1/classify"
        assert await says(adapters, f"{client}@{sorting}", "mllm") == other
        assert adapters.counts() == {"clients": 1, "answering": 1, "refused": 0}
        later = publish_lora(store, client, 3)
        store.rollback(client, "mllm")
        store.activate(client, later)
        await adapters.sync()
        assert [await says(adapters, client, family) for family in ("mllm", "clip")] == [later, sorting]

    play(scenario)


@pytest.mark.parametrize("client", ["dan", "base"])
def test_who_has_one_family_is_told_the_route_that_works(play: Callable[[Scenario], None], client: str) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        publish_prompt(store, "dan", 1)
        await adapters.sync()
        family: Family = "mllm" if client == "dan" else "clip"
        route = "/v1/classify" if client == "dan" else "/v1/chat/completions"
        assert (await says(adapters, client, family)).endswith(f": use {route}")
        name = adapters.answering(client)[0].name
        assert (await says(adapters, name, family)).endswith(f": use {route}")

    play(scenario)


@pytest.mark.parametrize("bad", ["mllm", "clip"])
def test_a_refused_version_hides_none_of_the_other_family(play: Callable[[Scenario], None], bad: Family) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        versions = {"mllm": publish_lora(store, "ann", 1), "clip": publish_prompt(store, "ann", 1)}
        host, good = (engine, "clip") if bad == "mllm" else (encoder, "mllm")
        host.refuses.add(f"ann@{versions[bad]}")
        await adapters.sync()
        assert await says(adapters, "ann", good) == versions[good]
        assert await says(adapters, "ann", bad) == f"503 ann@{versions[bad]} is refused: the engine could not do this"
        assert adapters.counts() == {"clients": 1, "answering": 0, "refused": 1}
        assert adapters.ready  # something is answered
        host.refuses.clear()
        await adapters.sync(retry_refused=True)
        await adapters.quarantine(adapters.live("ann", bad), "its numbers were not finite")  # type: ignore[arg-type]
        assert await says(adapters, "ann", good) == versions[good]
        assert (await says(adapters, "ann", bad)).startswith("503 ")

    play(scenario)


def test_a_pointer_that_lies_about_a_family_changes_nothing(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        versions = [publish_lora(store, "ann", 1), publish_prompt(store, "ann", 1)]
        await adapters.sync()
        pointer = store.root / "ann" / "live-clip.json"
        sound = pointer.read_bytes()
        for forged in (json.dumps({"version": versions[0]}).encode(), b"{half"):
            pointer.write_bytes(forged)
            await adapters.sync()
            assert [await says(adapters, "ann", family) for family in ("mllm", "clip")] == versions
            assert adapters.refused == {}
        gone = "0" * 16
        pointer.write_text(json.dumps({"version": gone, "previous": [versions[0]]}))
        pointer.with_name("live-mllm.json").unlink()
        await adapters.sync()
        await adapters.quarantine(adapters.live("ann", "clip"), "to have it look for another")  # type: ignore[arg-type]
        await adapters.sync()
        assert "no such version" in await says(adapters, "ann", "clip")
        pointer.write_bytes(sound)
        await adapters.sync(retry_refused=True)
        assert await says(adapters, "ann", "clip") == versions[1]

    play(scenario)


def test_versions_of_one_family_take_no_places_in_the_other(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        sorting = [publish_prompt(store, "ann", seed) for seed in range(19)]
        chatting = [publish_lora(store, "ann", seed) for seed in range(2)]
        await adapters.sync()
        held = [await adapters.lease("ann", "clip", version) for version in sorting[:-2]]
        assert await says(adapters, "ann", "mllm") == chatting[1]
        assert await says(adapters, f"ann@{chatting[0]}", "mllm") == chatting[0]
        assert "other versions" in await says(adapters, f"ann@{sorting[-2]}", "clip")
        for resident in held:
            resident.release()

    play(scenario)


def test_what_a_store_from_before_lost_answers_again(play: Callable[[Scenario], None]) -> None:
    async def scenario(store: Store, engine: FakeEngine, encoder: FakeEngine, adapters: Adapters) -> None:
        chatting, sorting = publish_lora(store, "global", 1), publish_prompt(store, "global", 1)
        for pointer in (store.root / "global").glob("live-*.json"):
            pointer.unlink()
        (store.root / "global" / "live.json").write_text(json.dumps({"version": sorting, "previous": [chatting]}))
        await adapters.sync()
        assert [await says(adapters, "global", family) for family in ("mllm", "clip")] == [chatting, sorting]

    play(scenario)


def test_a_client_is_told_what_answers_in_each_family(tmp_path: Path) -> None:
    """Over a gateway that serves one of them."""
    store = Store(tmp_path / "store")
    chatting, sorting = publish_lora(store, "ann", 1), publish_prompt(store, "ann", 1)
    headers = bearer(store, "ann")
    with TestClient(create_app(Settings(store=store.root, base=None, clip=CLIP))) as http:
        while http.get("/readyz").status_code != 200:
            pass
        assert http.get("/readyz").json() | {"ready": True} == {
            "ready": True, "engine": "none", "clients": 1, "answering": 0, "refused": 1,
        }  # fmt: skip
        said = http.get("/v1/clients/ann", headers=headers).json()
        assert said["families"] == {
            "mllm": {"class_names": [], "live": chatting, "answering": None},
            "clip": {"class_names": ["circle", "square", "triangle"], "live": sorting, "answering": sorting},
        }
        assert (said["family"], said["live"], said["answering"]) == ("clip", sorting, sorting)
        assert list(said["refused"]) == [chatting]
        [model] = http.get("/v1/models", headers=headers).json()["data"]
        base = model["fedtailor"]["base"]
        assert model["fedtailor"] == {
            "client": "ann", "version": sorting, "base": base, "family": "clip",
            "families": {"clip": {"version": sorting, "base": base}},
        }  # fmt: skip
        answer = http.post("/v1/chat/completions", headers=headers, json=ASKED | {"model": "ann"})
        assert "no base of family 'mllm'" in refusal(answer, 503)
        (store.root / "ann" / "live-mllm.json").write_bytes(b"{half")
        said = http.get("/v1/clients/ann", headers=headers).json()
        assert "live-mllm.json of client 'ann' is damaged" in said["families"]["mllm"]["problem"]
        assert said["answering"] == sorting


def test_publishing_the_other_family_leaves_the_endpoint_that_chats(gateway: LiveGateway) -> None:
    """Real engine, real encoder."""
    chatting = publish_lora(gateway.store, "kim", 60)
    gateway.wait_for("kim", chatting)
    before = gateway.ask("kim", "what is it?", noise(0))
    sorting = publish_prompt(gateway.store, "kim", 61)
    with gateway.http() as http:
        assert http.post("/v1/admin/reload").status_code == 200
        found = http.post("/v1/classify", json={"model": "kim", "image": data_url(noise(0))})
        [model] = [one for one in http.get("/v1/models").json()["data"] if one["id"] == "kim"]
    after = gateway.ask("kim", "what is it?", noise(0))
    assert (after["fedtailor"]["version"], found.json()["fedtailor"]["version"]) == (chatting, sorting)
    assert after["choices"] == before["choices"]
    families = model["fedtailor"]["families"]
    assert {family: one["version"] for family, one in families.items()} == {"mllm": chatting, "clip": sorting}
