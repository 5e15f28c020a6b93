"""One machine: accelerate starts a process a GPU (or several on a CPU), each acting for its share of the clients.

The main process runs the loop; the others wait for its commands. Everything that passes between them is a file under
the run folder: ``exchange/<turn>/down`` and ``up`` hold exactly the bytes a client is sent and uploads, ``private``
what stays with it. Results do not depend on the number of processes: a client's turn is a function of its parcel, its
own state and seeds of its own.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from adapters_store.disk.files import FILE_MODE, make_folder
from train.federation.backend import Ending, Reply
from train.federation.checkpoint import Checkpoint
from train.federation.client import Late, Site
from train.federation.evaluate import Scores
from train.methods.contract import Turn
from train.models.interfaces import Artefact
from train.tensors import Tensors, read, to_bytes

Notify = Callable[[str], None]


class LocalBackend:
    """Clients simulated on this machine; see the module. ``folder`` is the federation's part of the run folder."""

    def __init__(
        self,
        accelerator: Accelerator,
        site: Site,
        folder: Path,
        timeout: float,
        references: tuple[str, ...],
        notify: Notify = lambda client: None,
    ) -> None:
        self.accelerator, self.site, self.folder = accelerator, site, folder
        self.timeout, self.references, self.notify = timeout, references, notify
        self.command = folder / "exchange" / "command.json"

    def exchange(self, turn: Turn, parcels: Mapping[str, Tensors], committed: Checkpoint | None) -> list[Reply]:
        if turn.exchange == 0:
            shutil.rmtree(self.folder / "exchange", ignore_errors=True)
            shutil.rmtree(self.folder / "private", ignore_errors=True)
        for client, parcel in parcels.items():
            _write(self._path(turn, "down", client), to_bytes(parcel))
        self._together({"do": "train", "turn": asdict(turn), "clients": list(parcels), "committed": _name(committed)})
        return [self._reply(turn, client) for client in parcels]

    def finish(self, clients: list[str], committed: Checkpoint, shared: Artefact | None) -> dict[str, Ending]:
        shutil.rmtree(self.folder / "artefacts", ignore_errors=True)
        if shared is not None:
            self._write_artefact("global", shared)
        self._together({"do": "finish", "clients": clients, "committed": _name(committed)})
        return {client: Ending(self._read_artefact(client), self._read_scores(client)) for client in clients}

    def stop(self) -> None:
        """Sends the other processes out of ``serve``."""
        self._together({"do": "stop", "clients": []})

    def serve(self) -> None:
        """What every process but the main one does until ``stop``."""
        while self._next()["do"] != "stop":
            pass

    def _together(self, command: Mapping[str, Any]) -> None:
        _write(self.command, json.dumps(command).encode())
        self._next()

    def _next(self) -> dict[str, Any]:
        """Every process: waits for the command, does its share of it, waits for the others."""
        self.accelerator.wait_for_everyone()
        command: dict[str, Any] = json.loads(self.command.read_text())
        mine = command["clients"][self.accelerator.process_index :: self.accelerator.num_processes]
        for client in mine:
            if command["do"] == "train":
                self._train(client, Turn(**command["turn"]), _checkpoint(command["committed"]))
            else:
                self._finish(client, _checkpoint(command["committed"]))
            self.notify(client)
        self.accelerator.wait_for_everyone()
        return command

    def _train(self, client: str, turn: Turn, committed: Checkpoint | None) -> None:
        staged = self._staged(client)
        state = read(staged) if staged.exists() else committed.client(client) if committed else None
        parcel = read(self._path(turn, "down", client))
        try:
            trained = self.site.train(client, turn, parcel, state, self.timeout)
        except Late:
            refusal = f"{client} did not answer within federation.round_timeout = {self.timeout:g} s"
            _write(self._path(turn, "up", client, ".json"), json.dumps({"refusal": refusal}).encode())
            return
        _write(staged, to_bytes(trained.state))
        _write(self._path(turn, "up", client), to_bytes(trained.upload))
        report = {"loss": trained.loss, "seconds": trained.seconds}
        _write(self._path(turn, "up", client, ".json"), json.dumps(report).encode())

    def _finish(self, client: str, committed: Checkpoint | None) -> None:
        state = committed.client(client) if committed else None
        assert state is not None  # the personal turn, committed before, includes every client
        shared = self._read_artefact("global") if (self.folder / "artefacts" / "global").exists() else None
        finished = self.site.finish(client, state, shared, self.references)
        self._write_artefact(client, finished.artefact)
        scores = {row: asdict(value) for row, value in finished.scores.items()}
        _write(self.folder / "artefacts" / f"{client}.scores.json", json.dumps(scores).encode())

    def _reply(self, turn: Turn, client: str) -> Reply:
        report = json.loads(self._path(turn, "up", client, ".json").read_text())
        down = self._path(turn, "down", client).stat().st_size
        if "refusal" in report:
            return Reply(client, {}, float("nan"), self.timeout, down, 0, None, report["refusal"])
        up = self._path(turn, "up", client)
        upload = read(up)
        size = up.stat().st_size if upload else 0
        return Reply(client, upload, report["loss"], report["seconds"], down, size, self._staged(client))

    def _path(self, turn: Turn, way: str, client: str, suffix: str = ".safetensors") -> Path:
        return self.folder / "exchange" / f"{turn.kind}-{turn.round:04d}-{turn.exchange}" / way / f"{client}{suffix}"

    def _staged(self, client: str) -> Path:
        return self.folder / "private" / f"{client}.safetensors"

    def _write_artefact(self, name: str, artefact: Artefact) -> None:
        folder = self.folder / "artefacts" / name
        for file, data in artefact.files.items():
            _write(folder / file, data)
        fields = {key: value for key, value in asdict(artefact).items() if key != "files"}
        _write(self.folder / "artefacts" / f"{name}.fields.json", json.dumps(fields).encode())

    def _read_artefact(self, name: str) -> Artefact:
        folder = self.folder / "artefacts" / name
        fields = json.loads((self.folder / "artefacts" / f"{name}.fields.json").read_text())
        fields["class_names"] = tuple(fields["class_names"])
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return Artefact(files={str(path.relative_to(folder)): path.read_bytes() for path in paths}, **fields)

    def _read_scores(self, client: str) -> dict[str, Scores]:
        scores = json.loads((self.folder / "artefacts" / f"{client}.scores.json").read_text())
        return {row: Scores(**value) for row, value in scores.items()}


def _write(path: Path, data: bytes) -> None:
    """Everything that passes here is a client's or is on its way to one: its owner's alone to read."""
    make_folder(path.parent)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE)) as file:
        file.write(data)


def _name(checkpoint: Checkpoint | None) -> list[Any] | None:
    return [str(checkpoint.folder), checkpoint.round] if checkpoint else None


def _checkpoint(name: list[Any] | None) -> Checkpoint | None:
    return Checkpoint(Path(name[0]), name[1]) if name else None
