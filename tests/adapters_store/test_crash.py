"""A writer may die anywhere; a reader never sees half of anything, and the next writer just carries on."""

import json
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from adapters_store.store import Store
from tests.adapters_store.artefacts import manifest, prompt_files

WRITER = [sys.executable, "-m", "tests.adapters_store.killed_writer"]


@pytest.mark.parametrize("action", ["publish", "rollback", "gc"])
def test_a_writer_killed_before_any_of_its_touches_leaves_the_old_state_or_the_new(tmp_path: Path, action: str) -> None:
    ran = subprocess.run([*WRITER, tmp_path, action], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr  # the writer asserts that every version a reader sees is sound
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    first, second = lines[0]["versions"]
    third = lines[0]["again"]
    allowed = {
        "publish": [([first, second], second), ([first, second, third], second), ([first, second, third], third)],
        "rollback": [([first, second], second), ([first, second], first)],
        "gc": [([first, second], second), ([second], second)],
    }[action]
    found = [(line["versions"], line["live"]) for line in lines]
    assert all(state in allowed for state in found)
    assert found[0] == allowed[0]
    assert found[-1] == allowed[-1]
    assert [line["killed"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert {line["again"] for line in lines} == {third}


def test_a_publisher_killed_at_random_leaves_only_sound_versions(tmp_path: Path) -> None:
    choose = random.Random(0)
    for _ in range(4):
        with subprocess.Popen([*WRITER, tmp_path, "endless"], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(choose.randint(1, 20)):
                writer.stdout.readline()
            writer.kill()
        store = Store(tmp_path)
        live = store.live("amy")
        assert live is not None
        assert live.version in store.versions("amy")
        for version in store.versions("amy"):
            store.verify("amy", version)


def publish_several(root: Path, values: list[float]) -> list[str]:
    return [Store(root).publish(manifest(), prompt_files(v), {}, activate=True) for v in values]


def test_concurrent_publishers_lose_neither_a_version_nor_a_rollback_target(tmp_path: Path) -> None:
    shares = [[float(10 * worker + i) for i in range(6)] + [99.0] for worker in range(3)]
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(publish_several, tmp_path, share) for share in shares]
        store = Store(tmp_path)
        while not all(job.done() for job in running):
            live = store.live("amy")
            assert live is None or store.verify("amy", live.version)
        published = {version for job in running for version in job.result()}
    live = store.live("amy")
    assert live is not None
    assert len(published) == 19  # 18 of their own, and one that all three made
    assert set(store.versions("amy")) == published
    assert {live.version, *live.previous} == published
    assert not list((tmp_path / ".staging").iterdir())
