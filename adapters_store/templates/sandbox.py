"""Prompt templates rendered in a process of their own, bounded in processor time, memory and length.

jinja2's sandbox keeps a template from the host's objects, not from its time: three nested loops run for hours. The
process gets so much processor time for each conversation, and is ended by the kernel where a template takes more.
"""

import contextlib
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from adapters_store.templates.chat_template import Conversation, render

CPU_S = 0.5  # processor time for one conversation; a usual template takes about 1 ms, and 10 to be compiled
WALL_S = 10.0  # a process that says nothing for so long is ended, whatever it waits for
MEMORY = 1 << 29  # bytes of address space; Python and jinja2 take about 40 MiB
MOST_CHARACTERS = 4_000_000  # of a rendered prompt
LENGTH = struct.Struct("<I")
ROOT = Path(__file__).resolve().parents[2]
SAMPLE: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a-text-to-find"}]}
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class TemplateError(ValueError):
    """Why a template is not used; one sentence."""


class TemplateFailedError(TemplateError):
    """The template raised an error over this conversation; the message is what it said."""


class TemplateExceededError(TemplateError):
    """The template took more time or memory than a template gets; its process was ended."""


class Sandbox:
    """One such process. ``render`` is for one thread at a time; a process that was ended is followed by a new one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, template: str, conversation: Conversation, special: Mapping[str, str]) -> str:
        """The prompt. TemplateFailedError where the template fails, TemplateExceededError where it was stopped."""
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(WALL_S, process.kill)
        watch.start()
        try:
            _send(process.stdin, {"template": template, "conversation": conversation, "special": special})
            answer = _receive(process.stdout)
        except (BrokenPipeError, EOFError) as error:
            self.close()
            raise TemplateExceededError(
                f"the prompt template took more than {CPU_S:g} s of processor time or {MEMORY >> 20} MiB"
            ) from error
        finally:
            watch.cancel()
        if "error" in answer:
            raise TemplateFailedError(answer["error"])
        return str(answer["prompt"])

    def close(self) -> None:
        """Ends the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@lru_cache(maxsize=64)
def check_template(template: str) -> None:
    """TemplateError unless a question about a picture comes out of the template, in bounded time."""
    sandbox = Sandbox()
    try:
        prompt = sandbox.render(template, SAMPLE, SPECIAL)
    except TemplateFailedError as error:
        raise TemplateError(f"prompt_template fails over a plain question: {error}") from error
    finally:
        sandbox.close()
    if "a-text-to-find" not in prompt:
        raise TemplateError("prompt_template leaves out what the user says")


def _start() -> "subprocess.Popen[bytes]":
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "adapters_store.templates.sandbox"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=inherited,  # no secret of the host's is in reach
        start_new_session=True,  # Ctrl-C is for the host, which ends this process itself
    )


def _send(pipe: IO[bytes], message: object) -> None:
    data = json.dumps(message).encode()
    pipe.write(LENGTH.pack(len(data)) + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> dict[str, str]:
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    (length,) = LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    received: dict[str, str] = json.loads(data)
    return received


def main() -> None:
    """The process: conversations in on standard input, prompts out on standard output, until input closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    while True:
        try:
            asked = _receive(sys.stdin.buffer)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # its signal ends the process, also within one long C call
        answer = _answer(asked)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(sys.stdout.buffer, answer)


def _answer(asked: Mapping[str, object]) -> dict[str, str]:
    try:
        prompt = render(asked["template"], asked["conversation"], asked["special"])  # type: ignore[arg-type]
    except MemoryError:
        raise  # this process is not to be used again
    except Exception as error:  # a template is a program of somebody else's: anything may come out of it
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    if len(prompt) > MOST_CHARACTERS:
        return {"error": f"it gives {len(prompt)} characters, where at most {MOST_CHARACTERS} are taken"}
    return {"prompt": prompt}


if __name__ == "__main__":
    main()
