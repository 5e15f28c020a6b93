"""The vLLM process: started, watched, started again when it ends, and never left behind."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from serve.engine.client import EngineClient
from serve.engine.command import EnginePlan, engine_command, engine_environment
from serve.engine.sentinel import sentinel_token
from serve.errors import unavailable
from serve.settings import Settings

log = logging.getLogger(__name__)

State = Literal["starting", "up", "down"]
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 30.0
STEADY_S = 60.0  # an engine that was up this long starts the back-off anew
HEALTH_EVERY_S, HEALTH_TIMEOUT_S, HEALTH_MISSES = 5.0, 20.0, 3


class Engine:
    """Supervises one vLLM process over ``base``. ``generation`` counts starts: what was loaded before one is gone."""

    def __init__(
        self, base: Path, private: Path, settings: Settings, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """``private``: a folder that nobody else can open (serve/engine/private_folder.py)."""
        self._settings = settings
        self._on_change = on_change
        self.private = private
        sentinel = sentinel_token(base)
        self._plan = EnginePlan(base, self.private, secrets.token_urlsafe(32), sentinel)
        self.log_file = settings.engine_log or self.private / "engine.log"
        self.client = EngineClient(self._plan.socket, self._plan.key, settings.answer_timeout_s, sentinel)
        self.state: State = "starting"
        self.generation = 0
        self.starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins supervision; ``state`` becomes ``up`` some twenty seconds later."""
        self._task = asyncio.create_task(self._supervise(), name="engine")

    async def stop(self) -> None:
        """Ends the engine and everything it started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end_process()
        await self.client.close()

    def condemn(self) -> None:
        """Has the engine, which runs but cannot be trusted any more, ended and started anew."""
        self.state = "down"
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # the guard ends the whole group

    def require_up(self) -> EngineClient:
        """The client of a running engine; 503 with what is going on otherwise."""
        if self.state == "up":
            return self.client
        if self.state == "starting" and self.starts <= 1:
            raise unavailable("the engine that answers is still starting; try again shortly", retry_after_s=10)
        raise unavailable("the engine that answers stopped and is being started again; try again shortly", 10)

    async def _supervise(self) -> None:
        backoff = FIRST_BACKOFF_S
        while True:
            self._set("starting")
            began = time.monotonic()
            await self._spawn()
            if await self._becomes_healthy():
                self.generation += 1
                log.info("engine up after %.1f s (process group %s)", time.monotonic() - began, self._pid)
                self._set("up")
                up_since = time.monotonic()
                await self._until_it_fails()
                backoff = FIRST_BACKOFF_S if time.monotonic() - up_since > STEADY_S else backoff
            self._set("down")
            log.error("engine ended; starting it again in %.1f s. Its last words:\n%s", backoff, self._last_words())
            await self._end_process()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, LAST_BACKOFF_S)

    async def _spawn(self) -> None:
        self._plan.socket.unlink(missing_ok=True)
        guard = [sys.executable, str(Path(__file__).with_name("guard.py")), str(self._settings.stop_grace_s)]
        guard.append(str(self.private))
        with self.log_file.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *guard,
                *engine_command(self._plan, self._settings),
                env=engine_environment(self._plan, self._settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        self.starts += 1

    async def _becomes_healthy(self) -> bool:
        deadline = time.monotonic() + self._settings.engine_start_timeout_s
        while self._running and time.monotonic() < deadline:
            if self._plan.socket.exists() and await self.client.healthy(HEALTH_TIMEOUT_S):
                return True
            await asyncio.sleep(0.1)
        return False

    async def _until_it_fails(self) -> None:
        """Returns when the process ended, or did not answer its health check several times in a row."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        misses = 0
        try:
            while misses < HEALTH_MISSES:
                done, _ = await asyncio.wait({ended}, timeout=HEALTH_EVERY_S)
                if done:
                    return
                misses = 0 if await self.client.healthy(HEALTH_TIMEOUT_S) else misses + 1
            log.error("engine runs but did not answer %d health checks", misses)
        finally:
            ended.cancel()

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()  # the guard ends the whole group
        await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what is left of it where the guard itself was killed

    def _set(self, state: State) -> None:
        self.state = state
        self._on_change()

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def _pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _last_words(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        return "\n".join(lines[-15:])
