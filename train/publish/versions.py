"""From a run's artefacts to versions in the store."""

from collections.abc import Mapping
from typing import Any

from adapters_store.paths import GLOBAL
from adapters_store.store import Store
from adapters_store.versions.manifest import Manifest, Privacy
from train.methods.contract import Method
from train.models.interfaces import Artefact, ResidentModel


def publish(
    store: Store,
    method: Method[Any],
    model: ResidentModel,
    artefacts: Mapping[str, Artefact],
    reports: Mapping[str, Mapping[str, Any]],
    privacy: Mapping[str, Privacy],
    *,
    activate: bool,
) -> dict[str, str]:
    """Publishes these clients' artefacts (``global`` for the shared one) with their reports: client → version.

    ``privacy``: what differential privacy covers of a client's uploads, where it was on.

    Publishing the same content again is the same version, so a publication that was cut short can simply be repeated.
    """
    versions = {}
    for client, artefact in artefacts.items():
        manifest = Manifest(
            client=client,
            role="global" if client == GLOBAL else "personal",
            family=model.family,
            method=method.name,
            base=model.base,
            rank=artefact.rank,
            target_modules=artefact.target_modules,
            image_transform=model.image_transform,
            prompt_template=artefact.prompt_template,
            class_names=list(artefact.class_names),
            trust=method.trust,
            privacy=privacy.get(client),
        )
        versions[client] = store.publish(manifest, artefact.files, reports[client], activate=activate)
    return versions
