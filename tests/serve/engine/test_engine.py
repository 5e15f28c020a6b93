"""The engine as a process: closed to everybody else, complete on its own path, and gone when it should be."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from adapters_store.paths import PROJECT_ROOT
from serve.engine.command import SITE, EnginePlan, engine_command, engine_environment
from serve.settings import Settings
from tests.serve.engine.test_guard import wait_until_gone
from tests.serve.live import LiveGateway, command, data_url, noise, starting_gateway


@pytest.fixture
def plan(tmp_path: Path) -> EnginePlan:
    """A plan in a folder of the test."""
    return EnginePlan(tmp_path / "base", tmp_path, "the-internal-key", 3)


def test_the_key_is_in_nobodys_process_list(plan: EnginePlan) -> None:
    assert plan.key not in " ".join(engine_command(plan, Settings()))
    assert engine_environment(plan, Settings())["VLLM_API_KEY"] == plan.key


def test_flags_that_crash_or_mislead_are_not_used(plan: EnginePlan) -> None:
    command = engine_command(plan, Settings())
    assert "--enable-tower-connector-lora" not in command
    assert command[1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--generation-config") + 1] == "vllm"


def test_adapters_are_not_found_by_path(plan: EnginePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LORA_RESOLVER_CACHE_DIR", "/somewhere")
    assert not [name for name in engine_environment(plan, Settings()) if "RESOLVER" in name]


def test_nothing_is_reported_or_looked_up(plan: EnginePlan) -> None:
    environment = engine_environment(plan, Settings())
    for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_OFFLINE"):
        assert environment[name] == "1"


@pytest.mark.parametrize("spawned", [False, True])
def test_torchvision_imports_in_every_process_of_the_tree(plan: EnginePlan, tmp_path: Path, spawned: bool) -> None:
    """From a foreign folder, and in a child that multiprocessing spawns: vLLM's workers are such."""
    script = tmp_path / "script.py"
    work = "import torchvision, sys; assert torchvision.ops.nms; sys.exit(0)"
    spawn = (
        "import multiprocessing, sys\n"
        "def work():\n    import torchvision\n    assert torchvision.ops.nms\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); sys.exit(child.exitcode)\n"
    )
    script.write_text(spawn if spawned else work)
    environment = engine_environment(plan, Settings())
    assert environment["PYTHONPATH"].split(":")[0] == str(SITE)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()


def test_only_the_gateway_listens_and_only_where_it_was_told(gateway: LiveGateway) -> None:
    own_network = 0
    for process in gateway.engine_processes():
        listening = [c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}
        if os.readlink(f"/proc/{process.pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            own_network += 1
            for address in listening:  # vLLM's parts talk to each other there, and nobody else does
                with pytest.raises(OSError, match="refused"):
                    socket.create_connection((address.ip, address.port), timeout=5)
    assert own_network or not network_can_be_left()
    private = Path(
        next(word for p in gateway.engine_processes() for word in p.cmdline() if word.endswith("engine.sock"))
    )
    assert private.parent.stat().st_mode & 0o777 == 0o700
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(private)), base_url="http://engine") as http:
        assert http.get("/v1/models").status_code == 401  # even there, not without the internal key


def network_can_be_left() -> bool:
    """Whether this host lets a process have a network of its own."""
    probe = "from serve.engine.own_network import leave_network; import sys; sys.exit(not leave_network())"
    return subprocess.run([sys.executable, "-c", probe], cwd=PROJECT_ROOT, check=False).returncode == 0


@pytest.mark.parametrize("path", ["/invocations", "/tokenize", "/v1/load_lora_adapter", "/v1/completions", "/docs"])
def test_paths_of_the_engine_are_not_the_gateways(gateway: LiveGateway, path: str) -> None:
    with gateway.http() as http:
        assert http.post(path, json={}).status_code == 404


def test_a_killed_gateway_leaves_no_engine_and_no_folder_behind(tmp_path: Path) -> None:
    with starting_gateway(tmp_path / "store", clip="none", stop_grace_s=1) as starting:
        sockets: list[str] = []
        while not sockets:  # of the guard's command and of what it guards
            assert starting.process.poll() is None, starting.log()
            tree = psutil.Process(starting.process.pid).children(recursive=True)
            sockets = [word for process in tree for word in command(process) if word.endswith("engine.sock")]
            time.sleep(0.05)
        private = Path(sockets[0]).parent
        assert private.is_dir()
        starting.process.kill()
        starting.process.wait()
        wait_until_gone([process.pid for process in tree])
        assert not private.exists()


def until_not_ready(http: httpx.Client) -> None:
    """Returns once the gateway noticed that its engine is gone; it looks five times a second."""
    deadline = time.monotonic() + 10
    while http.get("/readyz").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_guard_takes_its_engine_with_it_and_the_gateway_goes_on(gateway: LiveGateway) -> None:
    tree = gateway.engine_processes()
    gateway.guard().kill()
    wait_until_gone([process.pid for process in tree])
    with gateway.http() as http:
        until_not_ready(http)
    gateway.wait_ready()
    assert gateway.ask("ann", "what?")["choices"]


def test_answers_come_from_the_engine_and_come_back_with_it(gateway: LiveGateway) -> None:
    before = gateway.ask("ann", "what?", noise(0), return_token_ids=True)
    body = {"model": "ann", "messages": [{"role": "user", "content": "what?"}]}
    gateway.stop_engine()
    with gateway.http() as http:
        for stream in (False, True):
            answer = http.post("/v1/chat/completions", json=body | {"stream": stream})
            assert answer.status_code == 503, answer.text
            assert "engine" in answer.json()["error"]["message"]
            assert int(answer.headers["retry-after"]) > 0
        assert http.get("/healthz").status_code == 200
        until_not_ready(http)
        image = {"model": "cat", "image": data_url(noise(0))}
        assert http.post("/v1/classify", json=image).status_code == 200  # what needs no engine goes on
    gateway.wait_ready()
    after = gateway.ask("ann", "what?", noise(0), return_token_ids=True)
    assert after["choices"][0]["token_ids"] == before["choices"][0]["token_ids"]
    assert after["fedtailor"] == before["fedtailor"]
