"""What both pretraining stages share: a schedule that ends with its budget, averaged weights, resumable state."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from train.pretraining import ranks

WARM_UP_STEPS: Final = 200
SAVE_EVERY_S: Final = 120.0
FINAL_LR: Final = 0.01
"""Learning rate at the end, as a share of the peak."""


@dataclass(frozen=True)
class Budget:
    """How long a stage lasts: a number of steps (reproducible to the bit) or minutes of wall-clock time."""

    minutes: float | None = None
    steps: int | None = None

    def progress(self, step: int, seconds: float) -> float:
        """Share of the budget that is used, 0–1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, seconds / 60 / (self.minutes or 1e-9))


class Average:
    """Exponential moving average of a module's weights."""

    def __init__(self, module: nn.Module) -> None:
        self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update_(self, module: nn.Module, step: int, decay: float) -> None:
        """Moves towards the module's weights; faster in the first steps."""
        share = min(decay, (1 + step) / (10 + step))
        for name, p in module.named_parameters():
            self.weights[name].lerp_(p.detach(), 1 - share)

    @torch.no_grad()
    def copy_to_(self, module: nn.Module) -> None:
        for name, p in module.named_parameters():
            p.copy_(self.weights[name])


def make_optimizer(module: nn.Module, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over what trains; vectors and embeddings are not decayed."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-6, fused=True)


class Stage:
    """A training loop's state: steps and seconds so far, weights, average, optimiser; saved now and then."""

    def __init__(
        self, name: str, module: nn.Module, folder: Path, budget: Budget, lr: float, weight_decay: float, decay: float
    ) -> None:
        self.name, self.module, self.folder, self.budget = name, module, folder, budget
        self.peak_lr, self.decay = lr, decay
        self.optimizer = make_optimizer(module, lr, weight_decay)
        self.average = Average(module)
        self.step, self.seconds, self.share = 0, 0.0, 0.0

    @property
    def draw(self) -> int:
        """Number of the batch that this process draws in this step: no two processes or steps share one."""
        return self.step * ranks.world() + ranks.rank()

    def steps(self) -> Iterator[int]:
        """Numbers of the batches to draw until the budget is used; shows progress, sets the learning rate."""
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        started = saved = time.monotonic()
        before = self.seconds
        with Progress(*columns, refresh_per_second=1, disable=ranks.rank() > 0) as bar:
            self._bar, self._task = bar, bar.add_task(self.name, total=1.0)
            while self._measure() < 1:
                bar.update(self._task, completed=self.share)
                self._set_lr()
                yield self.draw
                self.step += 1
                self.seconds = before + time.monotonic() - started
                if time.monotonic() - saved > SAVE_EVERY_S:
                    self.save()
                    saved = time.monotonic()
        self.save()

    def _measure(self) -> float:
        """Share of the budget that is used; the same in every process."""
        self.share = ranks.agree(self.budget.progress(self.step, self.seconds))
        return self.share

    def _set_lr(self) -> None:
        shape = FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * self.share))
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak_lr * shape * min(1.0, (self.step + 1) / WARM_UP_STEPS)

    def advance(self, losses: dict[str, Tensor]) -> None:
        """One optimiser step on the sum of the losses."""
        total = torch.stack(list(losses.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        ranks.average_gradients_(self.module)
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()
        self.average.update_(self.module, self.step, self.decay)
        if self.step % 50 == 0 and ranks.rank() == 0:
            shown = "  ".join(f"{name} {loss.item():.3f}" for name, loss in losses.items())
            self._bar.update(self._task, description=f"{self.name} {self.step}  {shown}")
            if not self._bar.console.is_terminal:
                print(f"{self.name} step {self.step}  {self.seconds:.0f} s  {shown}", flush=True)

    def save(self) -> None:
        """Writes state that `resume` continues from; a kill in between leaves the state before."""
        if ranks.rank() > 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"weight.{name}": p.detach() for name, p in self.module.named_parameters()}
        tensors |= {f"average.{name}": p for name, p in self.average.weights.items()}
        names: dict[Tensor, str] = {p: name for name, p in self.module.named_parameters()}
        for p, state in self.optimizer.state.items():
            tensors |= {f"state.{key}.{names[p]}": value for key, value in state.items()}
        note = {"progress": json.dumps({"step": self.step, "seconds": self.seconds})}
        partial = self.folder / f"{self.name}.partial"
        save_file({key: value.contiguous() for key, value in tensors.items()}, partial, note)
        partial.replace(self.folder / f"{self.name}.safetensors")

    @torch.no_grad()
    def resume(self) -> None:
        """Continues from the last save; starts afresh where there is none."""
        from safetensors import safe_open

        path = self.folder / f"{self.name}.safetensors"
        if not path.exists():
            return
        with safe_open(path, "pt") as stored:
            progress = json.loads(stored.metadata()["progress"])
        self.step, self.seconds = progress["step"], progress["seconds"]
        tensors = load_file(path)
        for name, p in self.module.named_parameters():
            p.copy_(tensors[f"weight.{name}"])
            self.average.weights[name].copy_(tensors[f"average.{name}"])
            keys = [key for key in ("step", "exp_avg", "exp_avg_sq") if f"state.{key}.{name}" in tensors]
            if keys:
                self.optimizer.state[p] = {key: tensors[f"state.{key}.{name}"].to(p.device) for key in keys}
