"""What a person and a program see of a run: live progress, ``metrics.jsonl``, and a tracker where one is asked for."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from adapters_store.disk.files import make_folder
from train.federation.backend import Reply
from train.methods.contract import Turn

Track = Callable[[Mapping[str, float], int], None]


class RunLog:
    """The log of one federation. ``title`` stands before every line, ``track`` receives figures by name and step."""

    def __init__(self, path: Path, title: str, track: Track = lambda figures, step: None) -> None:
        self.path, self.title, self.track = path, title, track
        self.console = Console(highlight=False, soft_wrap=True)
        self.progress: Progress | None = None
        make_folder(path.parent)
        path.touch()

    @property
    def size(self) -> int:
        """Bytes of ``metrics.jsonl`` so far."""
        return self.path.stat().st_size

    def rewind(self, size: int) -> None:
        """Forgets the lines of rounds that were never committed."""
        os.truncate(self.path, size)

    def say(self, sentence: str) -> None:
        self.console.print(f"{self.title}: {sentence}", markup=False)

    @contextmanager
    def phase(self, name: str, clients: int) -> Iterator[None]:
        """A bar that ``client_done`` moves, on a terminal; elsewhere one plain line when the phase is over."""
        columns = (
            TextColumn(f"{self.title}: {{task.description}}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        )  # fmt: skip
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as self.progress:
            task = self.progress.add_task(name, total=clients)
            yield
            self.progress.update(task, completed=clients)
            seconds = self.progress.tasks[0].elapsed or 0.0
        self.progress = None
        if not self.console.is_terminal:
            self.say(f"{name}: {clients} clients in {seconds:.1f} s")

    def client_done(self, client: str) -> None:
        if self.progress is not None:
            self.progress.advance(self.progress.tasks[0].id)

    def reply(self, turn: Turn, reply: Reply) -> None:
        """One client's turn."""
        self._line(
            turn,
            phase=turn.kind,
            client=reply.client,
            loss=reply.loss,
            seconds=round(reply.seconds, 4),
            bytes_up=reply.bytes_up,
            bytes_down=reply.bytes_down,
        )
        self.track({f"{self.title}/loss/{reply.client}": reply.loss}, turn.round)

    def refused(self, turn: Turn, client: str, reason: str) -> None:
        """A client left out of the round, and why."""
        self._line(turn, phase="refused", client=client, reason=reason)
        self.say(f"round {turn.round}: left out: {reason}")

    def combined(self, turn: Turn, figures: Mapping[str, float]) -> None:
        """The figures of one aggregation."""
        self._line(turn, phase="aggregate", client=None, **figures)
        self.track({f"{self.title}/{name}": value for name, value in figures.items()}, turn.round)

    def _line(self, turn: Turn, **fields: Any) -> None:
        values = {"round": turn.round, "exchange": turn.exchange, **fields}
        # a loss over no steps is not a number, which JSON cannot say
        clean = {k: None if isinstance(v, float) and v != v else v for k, v in values.items()}
        with self.path.open("a") as file:
            file.write(json.dumps(clean) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a ``metrics.jsonl``."""
    return [json.loads(line) for line in path.read_text().splitlines()]
