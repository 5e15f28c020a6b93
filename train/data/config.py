"""What data a federation holds: the `data:` section of a configuration, checked as a whole."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from train.data.fields import IMAGE_SETS, DataFields
from train.data.readers import DOMAINS
from train.data.tasks import misfits_of_tasks
from train.data.world.vocabulary import COLOURS, DIGITS, SHAPES


class DataConfig(DataFields):
    """The federated data. Of the embedded, a client has one style; one task or, with partition `style`, all."""

    def misfits(self) -> Iterator[str]:
        return chain(
            self._misfits_of_path(),
            self._misfits_of_sources(),
            self._misfits_of_tasks(),
            self._misfits_of_partition(),
            self._misfits_of_domains(),
            misfits_of_tasks(self),
            self._misfits_of_classes(),
        )

    def _misfits_of_path(self) -> Iterator[str]:
        if (self.name in (*IMAGE_SETS, "folder")) != (self.path is not None):
            yield (
                f"path: found {self.path!r} with name {self.name!r}; path and the name 'folder' or that of a public"
                " data set need each other"
            )
        if self.shared is not None and self.name != "folder":
            yield f"shared: found {self.shared!r} with name {self.name!r}; only 'folder' has a shared one"

    def _misfits_of_sources(self) -> Iterator[str]:
        if (self.name == "instructions") != bool(self.sources):
            yield (
                f"sources: found {len(self.sources)} with name {self.name!r}; sources and the name 'instructions' need"
                " each other"
            )
        if self.sources and self.classify:
            yield f"tasks: found {list(self.tasks)}, instructions have the tasks of their sources"

    def _misfits_of_tasks(self) -> Iterator[str]:
        if self.classify and self.tasks != ("classify",):
            yield f"tasks: found {list(self.tasks)}, 'classify' must be the only task"
        if self.name == "digits" and self.tasks not in (("classify",), ("digit",)):
            yield f"tasks: found {list(self.tasks)}, digits allow ['classify'] or ['digit']"
        if self.name in IMAGE_SETS and not self.classify:
            yield f"tasks: found {list(self.tasks)}, {self.name} allows ['classify'] alone"
        if self.few_shot is not None and not self.classify:
            yield f"few_shot: found {self.few_shot}, it counts examples a class: tasks must be ['classify']"

    def _misfits_of_partition(self) -> Iterator[str]:
        if self.name in ("folder", "instructions"):
            return
        allowed = _partitions(self.name)
        if self.partition not in allowed:
            listed = " or ".join(repr(partition) for partition in allowed)
            yield f"partition: found {self.partition!r}, with name {self.name!r} allowed are {listed}"
        if self.name == "scenes" and not self.classify and self.partition in DIVIDES_CLASSES:
            yield f"partition: found {self.partition!r}, which divides classes: tasks must be ['classify']"

    def _misfits_of_domains(self) -> Iterator[str]:
        domains, held_out = DOMAINS.get(self.name, ()) if self.partition == "domain" else (), self.unseen_domain
        if held_out is not None and held_out not in domains:
            allowed = f"allowed are {', '.join(domains)}" if domains else "allowed with partition 'domain' alone"
            yield f"unseen_domain: found {held_out!r}, {allowed}"
        number = len(domains) - (held_out is not None)
        if domains and self.clients % number:
            spared = "" if held_out is None else f" besides {held_out}"
            yield (f"clients: found {self.clients}, {self.name} has {number} domains{spared}: allowed are multiples")

    def _misfits_of_classes(self) -> Iterator[str]:
        divided = self.partition == "pathological"
        if self.classes_per_client is None and not divided:
            yield f"classes_per_client: null is for partition 'pathological', found {self.partition!r}"
        if self.candidates == "all" and not (divided and self.name in IMAGE_SETS):
            yield "candidates: 'all' is for public data sets with partition 'pathological'"
        if self.classes and self.name not in IMAGE_SETS:
            yield f"classes: found {list(self.classes)} with name {self.name!r}, which has its own"
        if len(set(self.classes)) < len(self.classes):
            yield f"classes: found {list(self.classes)}, each may be named once"
        pool = len(DIGITS) if self.name == "digits" else len(SHAPES)
        if self.name == "scenes" and self.colour == "mixed":
            pool *= len(COLOURS)
        if self.name in ("scenes", "digits") and self.classify and (self.classes_per_client or 0) > pool:
            yield f"classes_per_client: found {self.classes_per_client}, at most {pool} exist here"


DIVIDES_CLASSES: Final = ("pathological", "dirichlet")


def _partitions(name: str) -> tuple[str, ...]:
    """The partitions that this data can have."""
    if name == "scenes":
        return (*DIVIDES_CLASSES, "style", "task", "task_style")
    more = {"cifar100": ("pachinko",)} | dict.fromkeys(DOMAINS, ("domain",))
    return (*DIVIDES_CLASSES, *more.get(name, ()))
