"""What answers: a client's version, or the base; the little that serving needs to know of it."""

from dataclasses import dataclass
from pathlib import Path

from adapters_store.bases.llava import chat_template
from adapters_store.personal.connector import CONNECTOR
from adapters_store.pictures.processors import of_llava
from adapters_store.pictures.transform import ImageTransform
from adapters_store.store import Artefact
from adapters_store.versions.manifest import Family

BASE = "base"  # the model name of the base without an adapter


@dataclass(frozen=True)
class Subject:
    """One adapter in one version. Its name never means other bytes, since a version is the digest of its content."""

    client: str
    version: str
    family: Family
    folder: Path
    base_id: str
    image_transform: ImageTransform
    prompt_template: str
    class_names: tuple[str, ...] = ()
    connector: str | None = None  # SHA-256 of its connector's file; None: the base's projector

    @property
    def name(self) -> str:
        """``client@version``, which is also the engine's name for it."""
        return f"{self.client}@{self.version}"

    @property
    def identity(self) -> dict[str, str]:
        """What every answer says about who gave it."""
        return {"client": self.client, "version": self.version, "base": self.base_id}


def of_artefact(artefact: Artefact, folder: Path) -> Subject:
    """The subject of a version in the store; ``folder`` holds the files as they were verified."""
    manifest = artefact.manifest
    connector = manifest.files.get(CONNECTOR)
    return Subject(
        client=artefact.client,
        version=artefact.version,
        family=manifest.family,
        folder=folder.resolve(),
        base_id=manifest.base.id,
        image_transform=manifest.image_transform,
        prompt_template=manifest.prompt_template,
        class_names=tuple(manifest.class_names),
        connector=None if connector is None else connector.sha256,
    )


def of_base(base: Path, base_id: str, zero_adapter: Path) -> Subject:
    """The un-adapted base, with the chat template and the image transform of its own folder."""
    return Subject(
        client=BASE,
        version=base_id,
        family="mllm",
        folder=zero_adapter,
        base_id=base_id,
        image_transform=of_llava(base),
        prompt_template=chat_template(base),
    )
