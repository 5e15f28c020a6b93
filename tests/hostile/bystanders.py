"""Two tenants who are asked without pause while somebody else is up to something, and what they were told."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.serve.live import LiveGateway

QUESTION = "what color is the circle?"


@dataclass
class Heard:
    """Every answer that was not the right one, how many were, and how long each took in seconds."""

    wrong: list[str] = field(default_factory=list)
    right: int = 0
    seconds: list[float] = field(default_factory=list)


def asked(model: str) -> dict[str, Any]:
    """The request that bystanders make."""
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 12}


def said(answer: dict[str, Any]) -> tuple[str, str]:
    """Text and version of an answer."""
    return answer["choices"][0]["message"]["content"], answer["fedtailor"]["version"]


@contextmanager
def bystanders(gateway: LiveGateway, *models: str) -> Iterator[Heard]:
    """Asks each of the models without pause; what they say now is what they are to say all the time."""
    heard, over = Heard(), threading.Event()
    expected = {model: said(gateway.ask(**_call(model))) for model in models}

    def ask(model: str) -> None:
        with gateway.http(gateway.key(model)) as http:
            while not over.is_set():
                began = time.monotonic()
                answer = http.post("/v1/chat/completions", json=asked(model))
                heard.seconds.append(time.monotonic() - began)
                if answer.status_code == 200 and said(answer.json()) == expected[model]:
                    heard.right += 1
                else:
                    heard.wrong.append(f"{model}: {answer.status_code} {answer.text[:300]}")

    threads = [threading.Thread(target=ask, args=(model,), daemon=True) for model in models]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        over.set()
        for thread in threads:
            thread.join(120)


def _call(model: str) -> dict[str, Any]:
    return {"model": model, "question": QUESTION, "max_tokens": 12}
