"""``make demo``: federated rounds → versions in the store → gateway and engine → a personal answer per client.

Every step is a command that a user has too; this file only runs them in order, times them, and prints what came of it.
"""

import argparse
import base64
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from PIL import Image

from train.data import DataConfig, Example, build

ROOT = Path(__file__).resolve().parent
CONFIG = ROOT / "train" / "configs" / "demo.yaml"
FOLDER = ROOT / "demo-run"
START_LIMIT_S = 180.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demonstration; with ``--no-stay`` ends what it started, else waits for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="demo.py", description="From federated rounds to a served personal answer.")
    parser.add_argument("--no-stay", action="store_true", help="end gateway, engine and page after the answers")
    stay = not parser.parse_args(argv).no_stay
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended on every way out
    with ExitStack() as services:
        train()
        gateway, key = services.enter_context(serving())
        page = services.enter_context(browsing(gateway))
        picture = ask_everybody(gateway, key)
        print(f"\nDemonstration: {time.monotonic() - started:.0f} s")
        if stay:
            print_addresses(gateway, page, key, picture)
            wait_for_interrupt()
    return 0


def train() -> None:
    """Federated rounds over two processes, published to a store of the demonstration's own."""
    print("Training: federated rounds over the 4-bit base", flush=True)
    began = time.monotonic()
    processes = ROOT / "train" / "configs" / "accelerate" / "cpu2.yaml"
    launch = [str(Path(sys.executable).parent / "accelerate"), "launch", "--config_file", str(processes)]
    run = ["train/fed.py", "--config", str(CONFIG), "--out", str(FOLDER / "run")]
    store = ["--publish.store", str(FOLDER / "store"), "--federation.processes", "2"]
    subprocess.run([*launch, *run, *store], cwd=ROOT, check=True)
    print(f"Training: {time.monotonic() - began:.0f} s", flush=True)


@contextmanager
def serving() -> Iterator[tuple[str, str]]:
    """The gateway's address and an admin's key, while it and its engine are up."""
    key = subprocess.run(
        [sys.executable, "-m", "serve", "keys", "--store", str(FOLDER / "store"), "add", "--admin"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    port = free_port(8000)
    began = time.monotonic()
    command = ["serve", "--store", str(FOLDER / "store"), "--port", str(port)]
    with service(command, f"http://127.0.0.1:{port}", "/readyz", "gateway.log") as url:
        print(f"Engine up: {time.monotonic() - began:.0f} s", flush=True)
        yield url, key


@contextmanager
def browsing(gateway: str) -> Iterator[str]:
    """The page's address while it is up."""
    port = free_port(7860)
    command = ["ui", "--gateway", gateway, "--port", str(port)]
    with service(command, f"http://127.0.0.1:{port}", "/", "page.log") as url:
        yield url


@contextmanager
def service(module: list[str], url: str, ready: str, log: str) -> Iterator[str]:
    """A ``python -m`` server in the background that answers at ``url``; ended with the block."""
    path = FOLDER / log
    with path.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *module], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_LIMIT_S
        while not answers(url + ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{module[0]} did not start:\n{path.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def ask_everybody(gateway: str, key: str) -> Path:
    """Asks each client's model, the global one and the base about a picture of that client's test split.

    Returns the path of the last picture.
    """
    config = yaml.safe_load(CONFIG.read_text())
    results = {client["id"]: client for client in json.loads((FOLDER / "run" / "results.json").read_text())["clients"]}
    picture = FOLDER
    for client in build(DataConfig.model_validate(config["data"]), config.get("seed", 0)):
        example = client.test[0]
        picture = FOLDER / f"{client.id}.png"
        Image.fromarray(example.image).resize((256, 256), Image.Resampling.NEAREST).save(picture)
        said = {model: ask(gateway, key, model, example) for model in (client.id, "global", "base")}
        scores = results[client.id]
        print(f"\n{client.id} ({client.note}), picture {picture.relative_to(ROOT)}")
        print(f"  question      {example.question}")
        print(f"  truth         {example.answer}")
        print(f"  personal      {said[client.id]}   (test accuracy {scores['personal']:.0%})")
        print(f"  global        {said['global']}   (test accuracy {scores['global']:.0%})")
        print(f"  base          {said['base']}   (test accuracy {scores['zero_shot']:.0%})", flush=True)
    return picture


def ask(gateway: str, key: str, model: str, example: Example) -> str:
    """One model's answer about one picture."""
    body = chat(model, example.question, png_url(example))
    answer = httpx.post(
        f"{gateway}/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"}, timeout=120
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"]).strip()


def chat(model: str, question: str, url: str) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 32}


def png_url(example: Example) -> str:
    buffer = io.BytesIO()
    Image.fromarray(example.image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def print_addresses(gateway: str, page: str, key: str, picture: Path) -> None:
    """Where to go on from here, to copy."""
    client = picture.stem
    request = FOLDER / "request.json"
    url = "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
    request.write_text(json.dumps(chat(client, "How many objects are there?", url)))
    print(f"\nEndpoints  {gateway}/v1   key {key}\nBrowser    {page}   (log in with the key)\n")
    print(f"curl -s {gateway}/v1/chat/completions -H 'Authorization: Bearer {key}' \\")
    print(f"  -H 'Content-Type: application/json' -d @{request.relative_to(ROOT)}\n\nCtrl-C ends it.", flush=True)


def wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("\nEnding gateway, engine and page.")


def free_port(wanted: int) -> int:
    """The wanted port of the loopback address, or another free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise SystemExit("no free port on 127.0.0.1")


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
