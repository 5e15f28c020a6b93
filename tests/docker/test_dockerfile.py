"""What can be said of the Dockerfile without building it; ``run_steps.py`` builds it without a container engine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.dockerfile import chain, context, parse
from tests.docker.run_steps import PROJECT

TEXT = (PROJECT / "Dockerfile").read_text()
STAGES = parse(TEXT)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_both_targets_install_by_make_end_as_an_ordinary_user_and_say_how_they_are(target: str) -> None:
    steps = chain(STAGES, target)
    assert [s.text for s in steps if s.name == "RUN" and "make" in s.text][-1] == f"make install EXTRA={target}"
    assert [s.text for s in steps if s.name == "USER"] == ["fedtailor"]
    assert any(s.name == "HEALTHCHECK" and "/healthz" in s.text for s in steps)
    assert [s.command for s in steps if s.name == "CMD"] == [["python", "-m", "serve"]]


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_what_make_install_reads_is_copied_before_it_runs(target: str) -> None:
    recipe = (PROJECT / "Makefile").read_text().partition("\n$(INSTALLED): ")[2].partition("\n\n")[0]
    read = set(re.findall(r"[\w/.-]+\.(?:py|txt|toml)", recipe.replace("$(EXTRA)", target)))
    assert {"pyproject.toml", f"requirements/{target}.txt"} <= read
    steps = chain(STAGES, target)
    install = next(i for i, s in enumerate(steps) if s.text == f"make install EXTRA={target}")
    copied = [source for s in steps[:install] if s.name == "COPY" for source in s.text.split()[:-1]]
    assert {name for name in read if not name.startswith(tuple(copied))} == set()


def test_the_image_needs_no_address_but_those_of_debian_and_of_itself() -> None:
    assert set(re.findall(r"https?://[^\s'\"]+", TEXT)) == {"http://127.0.0.1:8000/healthz", "http://HOST:8000"}
    assert {s.base for s in STAGES.values()} - STAGES.keys() == {"debian:bookworm-slim"}


def test_the_image_gets_the_sources_and_not_what_lies_around(tmp_path: Path) -> None:
    for path in (
        "serve/app.py",
        "serve/__pycache__/app.pyc",
        ".venv/bin/python",
        "runs/a/x",
        "adapters_store/store.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for path in (
        "adapters_store/published/keys.json",
        ".git/config",
        "bases/.exports/x",
        "bases/tiny/clip/x",
        "tests/t.py",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    sent = {path.as_posix() for path in context(tmp_path, (PROJECT / ".dockerignore").read_text())}
    assert sent == {"serve/app.py", "adapters_store/store.py", "bases/tiny/clip/x"}


@pytest.mark.accept
@pytest.mark.skipif(os.geteuid() != 0, reason="making a Debian root needs root")
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
def test_the_steps_run_on_a_bare_debian_root_and_the_service_becomes_ready(tmp_path: Path) -> None:
    more = os.environ.get("FEDTAILOR_RUN_STEPS", "").split()  # --seed and --bind of this machine
    command = [sys.executable, "-m", "tests.docker.run_steps", "--root", str(tmp_path / "image"), *more]
    ran = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=3000)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert "engine ready after" in ran.stdout
