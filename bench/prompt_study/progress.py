"""How far a study is: a bar with the time left on a terminal, elsewhere a line for each part that is done."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A function to be called with the name of each of the ``total`` parts when it is done."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    started = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        finished = 0

        def done(part: str) -> None:
            nonlocal finished
            finished += 1
            bar.update(task, advance=1, description=f"{title}: {part}")
            if not console.is_terminal:
                seconds = time.monotonic() - started
                left = seconds / finished * (total - finished)
                console.print(f"{title}: {finished}/{total} in {seconds:.0f} s, about {left:.0f} s left: {part}")

        yield done
