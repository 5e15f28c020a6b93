"""What a run has committed: the server's and every client's state after a round, in one folder, made by one rename."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters_store.disk.files import make_folder, sync_folder, write_new
from train.tensors import Tensors, read, to_bytes

KEPT = 2  # the newest, and the one before it for the case that a disk lied about fsync


@dataclass(frozen=True)
class Checkpoint:
    """A committed round: ``<folder>/server.safetensors``, ``progress.json``, ``clients/<id>.safetensors``."""

    folder: Path
    round: int

    @property
    def server(self) -> Tensors:
        return read(self.folder / "server.safetensors")

    @property
    def progress(self) -> dict[str, Any]:
        progress: dict[str, Any] = json.loads((self.folder / "progress.json").read_text())
        return progress

    def client(self, client: str) -> Tensors | None:
        """A client's own state; None when it never took part."""
        path = self.folder / "clients" / f"{client}.safetensors"
        return read(path) if path.exists() else None


class Checkpoints:
    """The committed rounds of one federation, under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def latest(self) -> Checkpoint | None:
        """The newest committed round; None before the first."""
        rounds = self._committed()
        return Checkpoint(rounds[-1], int(rounds[-1].name)) if rounds else None

    def forget_after(self, round: int) -> None:
        """Removes what was committed after this round."""
        for folder in reversed(self._committed()):
            if int(folder.name) > round:
                shutil.rmtree(folder)

    def commit(
        self, round: int, server: Tensors, progress: Mapping[str, Any], staged: Mapping[str, Path]
    ) -> Checkpoint:
        """Makes this round the newest: server state, progress and the staged client states together, or not at all."""
        before = self.latest()
        partial = self.root / f"partial-{round:04d}"
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial / "clients")
        if before is not None:
            for path in (before.folder / "clients").iterdir():
                if path.stem not in staged:
                    os.link(path, partial / "clients" / path.name)
        for client, path in staged.items():
            write_new(partial / "clients" / f"{client}.safetensors", path.read_bytes())
        write_new(partial / "server.safetensors", to_bytes(server))
        write_new(partial / "progress.json", json.dumps(progress, sort_keys=True).encode())
        for folder in (partial / "clients", partial):
            sync_folder(folder)
        final = self.root / f"{round:04d}"
        partial.rename(final)
        sync_folder(self.root)
        for old in self._committed()[:-KEPT]:
            shutil.rmtree(old)
        return Checkpoint(final, round)

    def _committed(self) -> list[Path]:
        return sorted(path for path in self.root.glob("[0-9]*") if path.name.isdigit())
