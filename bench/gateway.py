"""``python bench/gateway.py``: what of the engine's throughput the gateway hands on, measured.

One engine, asked in two ways in turn: through the gateway, and over the engine's own socket with the rendered prompt.
Both sides answer the same questions with the same adapters, 16 tokens each, the same number in flight. Windows
alternate (gateway, engine, engine, gateway), each such block gives one ratio. Results, with the machine they were
measured on, go to gateway.json in the folder --out, with --record in bench/results.
"""

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "bench":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside bench/, not in it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the engine needs the core that waiting threads would spin on

import httpx  # noqa: E402
import psutil  # noqa: E402

from adapters_store.store import Store  # noqa: E402
from bench.connector_study import sides, versions  # noqa: E402
from bench.prompt_study.machine import machine  # noqa: E402
from bench.prompt_study.progress import progress  # noqa: E402
from bench.results_folder import add_out, results_folder  # noqa: E402
from train.compare.intervals import interval  # noqa: E402

BASE = ROOT / "bases" / "tiny" / "llava"
CLIENTS = tuple(f"c{number}" for number in range(8))
ORDER = ("gateway", "engine", "engine", "gateway")
Ask = Callable[[str], Awaitable[None]]


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, writes, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_out(parser)
    parser.add_argument("--blocks", type=int, default=10, help="blocks of four windows (default: 10)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a window (default: 5)")
    parser.add_argument("--answer-tokens", type=int, default=16, help="length of every answer (default: 16)")
    options = parser.parse_args(argv)
    folder = results_folder(options)
    with progress("gateway", 1 + len(ORDER) * options.blocks) as done:
        rates = asyncio.run(measure(options.blocks, options.seconds, options.answer_tokens, done))
    ratios = [mean((b[0], b[3])) / mean(b[1:3]) for b in rates]
    found = {"mean": mean(ratios), "interval": interval(ratios)}
    content = {"machine": machine(), "in_flight": len(CLIENTS), "window_seconds": options.seconds}
    content |= {"answer_tokens": options.answer_tokens, "answers_per_second": {"order": ORDER, "blocks": rates}}
    (folder / "gateway.json").write_text(json.dumps(content | {"ratio": found}, indent=1) + "\n")
    print(f"gateway / engine: {found['mean']:.3f}, 95 % interval over {len(ratios)} blocks {found['interval']}")


async def measure(blocks: int, seconds: float, tokens: int, done: Callable[[str], None]) -> list[list[float]]:
    """Answers a second of the four windows of each block."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        base = versions.endless(BASE, Path(folder) / "base")
        versions.publish(store, base, CLIENTS)
        async with sides.gateway(store, base, CLIENTS, tokens) as front, _engine(front.process_id) as engine:
            questions = itertools.count()
            names = {client: f"{client}@{store.versions(client)[0]}" for client in CLIENTS}

            async def through_gateway(client: str) -> None:
                said = {"role": "user", "content": f"question {next(questions)}?"}
                await _answer(front.http, {"model": client, "messages": [said], "max_tokens": tokens})

            async def from_engine(client: str) -> None:
                prompt = f"<s>USER: question {next(questions)}? ASSISTANT:"
                said = {"role": "user", "content": [{"type": "text", "text": prompt}]}
                body = {"model": names[client], "messages": [said], "max_tokens": tokens, "temperature": 0}
                await _answer(engine, body | {"add_special_tokens": False, "cache_salt": client})

            sides_of: dict[str, Ask] = {"gateway": through_gateway, "engine": from_engine}
            for ask in sides_of.values():  # everything has been asked once before anything is timed
                await _rate(ask, seconds)
            done("gateway and engine started")
            rates = []
            for _ in range(blocks):
                block = []
                for name in ORDER:
                    block.append(await _rate(sides_of[name], seconds))
                    done(f"{name}: {block[-1]:.1f} answers/s")
                rates.append(block)
            return rates


async def _rate(ask: Ask, seconds: float) -> float:
    ended = 0
    began = time.perf_counter()

    async def keep_asking(client: str) -> None:
        nonlocal ended
        while time.perf_counter() - began < seconds:
            await ask(client)
            ended += 1

    await asyncio.gather(*map(keep_asking, CLIENTS))
    return ended / (time.perf_counter() - began)


async def _answer(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = (await http.post("/v1/chat/completions", json=body)).raise_for_status().json()
    assert answer["usage"]["completion_tokens"] == body["max_tokens"], answer


def _engine(gateway: int) -> httpx.AsyncClient:
    """A client of that gateway's engine, by its socket and with the key that only its processes have."""
    for process in psutil.Process(gateway).children(recursive=True):
        words, environment = process.cmdline(), process.environ()
        if "--uds" in words and "VLLM_API_KEY" in environment:
            return httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=words[words.index("--uds") + 1]),
                base_url="http://engine",
                headers={"Authorization": f"Bearer {environment['VLLM_API_KEY']}"},
                timeout=60,
            )
    raise RuntimeError("the gateway has no engine")


if __name__ == "__main__":
    main()
