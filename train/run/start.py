"""One run: data, base, the federation and its local reference, then results and publication."""

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from adapters_store.paths import GLOBAL, default_store
from adapters_store.store import Store, StoreError
from adapters_store.versions.manifest import Privacy
from train.data import build
from train.errors import INTERRUPTED, RunError, in_words
from train.federation.backend import Ending
from train.federation.checkpoint import Checkpoints
from train.federation.client import Site
from train.federation.local_backend import LocalBackend
from train.federation.log import RunLog, read_metrics
from train.federation.rounds import Federation, RoundError
from train.methods import build_method
from train.methods.contract import ClientInfo, Method
from train.methods.local import Local
from train.models.interfaces import Artefact
from train.models.resident import load_resident
from train.privacy.accounting import Costs
from train.publish.versions import publish
from train.run.config import RunConfig
from train.run.feasible import check_clients
from train.run.lock import run_lock
from train.run.notices import beginning, ending
from train.run.private import costs_of, mechanism_of
from train.run.results import draw_curves, summarise, table, write_json
from train.run.setup import claim_folder, extend, run_folder, start_processes


def start(config: RunConfig, options: argparse.Namespace) -> None:
    """Plays the configuration in a folder of its own, or goes on in the one to resume. Raises RunError."""
    folder = run_folder(config, options)
    accelerator = start_processes(config, folder)
    playing = False
    try:
        with run_lock(folder, options.resume is not None, accelerator):
            run = Run(config, folder, accelerator)
            playing = True
            run.play()
    except (RoundError, StoreError, ValueError) as error:
        raise RunError(str(error), of_one=playing) from error
    except OSError as error:
        raise RunError(in_words(error) + _go_on(folder), of_one=playing) from error
    except KeyboardInterrupt as error:
        raise RunError("interrupted" + _go_on(folder), INTERRUPTED) from error
    finally:
        accelerator.end_training()


def _go_on(folder: Path) -> str:
    """How, where there is something to go on with."""
    return f"; go on with --resume {folder}" if (folder / "config.json").exists() else ""


class Run:
    """A configuration at work in a folder, on this process and its siblings."""

    def __init__(self, config: RunConfig, folder: Path, accelerator: Accelerator) -> None:
        self.config, self.folder, self.accelerator = config, folder, accelerator
        self.split = config.evaluate.split
        self.method = build_method(config.method)
        self.clients = {client.id: client for client in build(config.data, config.seed)}
        self.infos = {c.id: ClientInfo.of(c) for c in self.clients.values()}
        check_clients(config, self.method.family, list(self.clients.values()))
        self.model = load_resident(
            config.base, self.method.family, accelerator.device, max_new_tokens=config.evaluate.max_new_tokens
        )
        self.mechanism = mechanism_of(config, self.method, list(self.infos.values()), folder)
        if accelerator.is_main_process:
            claim_folder(folder, config)
            extend(folder, config.federation.rounds)
            if config.tracking.report_to:
                accelerator.init_trackers(config.tracking.project)

    def play(self) -> None:
        """Everything there is to do that is not done yet."""
        self._say(beginning(self.folder, list(self.clients.values()), self.infos))
        endings, shared = self._federate(self.method, self.folder)
        local: Mapping[str, Ending] = {}
        if "local" in self.config.evaluate.references:
            local = self._alone(endings)
        if self.accelerator.is_main_process:
            logged = read_metrics(self.folder / "metrics.jsonl")
            costs = costs_of(self.config, self.mechanism, list(self.infos.values()), logged)
            results = self._results(endings, local, costs)
            versions: dict[str, str] = {}
            if self.config.publish.enabled:
                versions = self._publish(endings, shared, results, costs.statements() if costs else {})
            self._say(ending(self.folder, self.config, self.method, versions))

    def _alone(self, endings: Mapping[str, Ending]) -> Mapping[str, Ending]:
        """What every client reaches by itself: of a one-shot method its personal version, unless that was private."""
        if not self.method.one_shot or self.mechanism is not None:
            return self._federate(Local(self.method), self.folder / "local")[0]
        logged = read_metrics(self.folder / "metrics.jsonl") if self.accelerator.is_main_process else []
        trained, refused = ({line["client"] for line in logged if line["phase"] == p} for p in ("train", "refused"))
        return {client: ending for client, ending in endings.items() if client in trained - refused}

    def _federate(self, method: Method[Any], folder: Path) -> tuple[dict[str, Ending], Artefact | None]:
        """The loop on the main process, its commands on the others, which get nothing back."""
        log = RunLog(folder / "metrics.jsonl", method.name, self._track)
        federated = method is self.method
        references = self.config.evaluate.references if federated else ()
        mechanism = self.mechanism if federated else None  # the local reference uploads nothing
        site = Site(
            self.model, method, self.clients, self.infos, self.config.client, self.config.seed, self.split, mechanism
        )
        timeout = self.config.federation.round_timeout
        backend = LocalBackend(self.accelerator, site, folder, timeout, references, log.client_done)
        if not self.accelerator.is_main_process:
            backend.serve()
            return {}, None
        infos = list(self.infos.values())
        checkpoints = Checkpoints(folder / "checkpoints")
        federation = Federation(
            method, self.model, infos, self.config.federation, self.config.seed, backend, checkpoints, log
        )
        outcome = federation.run()
        backend.stop()
        return outcome

    def _results(
        self, endings: Mapping[str, Ending], local: Mapping[str, Ending], costs: Costs | None
    ) -> dict[str, Any]:
        metrics = read_metrics(self.folder / "metrics.jsonl")
        run = {
            "method": self.method.name,
            "family": self.method.family,
            "seed": self.config.seed,
            "rounds": self.config.federation.rounds,
        }
        n_test = {c.id: len(c.test if self.split == "test" else c.val) for c in self.clients.values()}
        results = summarise(run, list(self.infos.values()), n_test, endings, local, metrics, costs)
        write_json(self.folder / "results.json", results)
        draw_curves(results, metrics, self.folder / "curves.png")
        RunLog(self.folder / "metrics.jsonl", self.method.name).console.print(table(results))
        return results

    def _publish(
        self,
        endings: Mapping[str, Ending],
        shared: Artefact | None,
        results: Mapping[str, Any],
        privacy: Mapping[str, Privacy],
    ) -> dict[str, str]:
        artefacts = {client: ending.artefact for client, ending in endings.items()}
        reports = {entry["id"]: self._report(entry, privacy.get(entry["id"])) for entry in results["clients"]}
        if shared is not None:
            artefacts[GLOBAL] = shared
            reports[GLOBAL] = self._report({"mean": results["mean"], "worst": results["worst"]}, privacy.get(GLOBAL))
        store = Store(self.config.publish.store or default_store())
        activate = self.config.publish.activate
        versions = publish(store, self.method, self.model, artefacts, reports, privacy, activate=activate)
        write_json(self.folder / "versions.json", versions)
        log = RunLog(self.folder / "metrics.jsonl", self.method.name, self._track)
        log.say(f"published {len(versions)} versions to {store.root}")
        return versions

    def _say(self, lines: Sequence[str]) -> None:
        """To the person at the terminal, once for all processes."""
        if self.accelerator.is_main_process:
            print("\n".join(lines), flush=True)

    def _report(self, evaluation: Mapping[str, Any], privacy: Privacy | None) -> dict[str, Any]:
        """What came of this version, beside its manifest."""
        return {
            "evaluation": evaluation,
            "run": self.folder.name,
            "rounds": self.config.federation.rounds,
            "privacy": privacy.model_dump(mode="json") if privacy else None,
            "config_digest": hashlib.sha256((self.folder / "config.json").read_bytes()).hexdigest()[:16],
        }

    def _track(self, figures: Mapping[str, float], step: int) -> None:
        if self.config.tracking.report_to:
            self.accelerator.log(dict(figures), step=step)
