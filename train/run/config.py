"""What a run is told, validated once and frozen: a YAML file, overridden by ``--section.field value``."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from train.data import DataConfig
from train.methods import Options, build_method
from train.methods.contract import Method
from train.methods.local import Local
from train.methods.pfedmoap import PFedMoAP
from train.methods.pfedprompt import PFedPromptOptions
from train.methods.pilot import PilotOptions
from train.section import Section, misfits_within
from train.sections import (
    BaseConfig,
    ClientConfig,
    EvaluateConfig,
    FederationConfig,
    PrivacyConfig,
    PublishConfig,
    TrackingConfig,
)


class RunConfig(Section):
    """A federated run."""

    seed: int = Field(0, ge=0, description="everything random is derived from it")
    method: Options = Field(description="the federated method and its own options")
    base: BaseConfig = Field(description="the frozen base")
    data: DataConfig = Field(description="the clients' data")
    federation: FederationConfig = Field(FederationConfig(), description="rounds and who takes part")
    client: ClientConfig = Field(description="local training")
    privacy: PrivacyConfig = Field(PrivacyConfig(), description="differential privacy of what is uploaded")
    evaluate: EvaluateConfig = Field(EvaluateConfig(), description="what is measured at the end")
    publish: PublishConfig = Field(PublishConfig(), description="where the versions go")
    tracking: TrackingConfig = Field(TrackingConfig(), description="experiment trackers")

    def misfits(self) -> Iterator[str]:
        """What the method does not allow, and what cannot be made private."""
        if not any(misfits_within(self.method)):
            method = build_method(self.method)
            yield from self._misfits_of(method)
            yield from self._private_misfits_of(method)

    def _misfits_of(self, method: Method[Any]) -> Iterator[str]:
        if method.one_shot and self.federation.rounds != 1:
            yield f"federation.rounds: found {self.federation.rounds}; {method.name} talks once, 1 is allowed"
        drawn = self.federation.clients_per_round or self.data.clients
        if method.clients and self.data.name not in ("folder", "instructions") and drawn != method.clients:
            yield f"data.clients: found {drawn} in a round; {method.name} allows {method.clients} exactly"
        if self.client.personal_steps and not method.fine_tunes:
            yield (
                f"client.personal_steps: found {self.client.personal_steps}; {method.name} publishes what a client "
                "trained last, so 0 is allowed"
            )
        if isinstance(self.method, PilotOptions) and self.method.ct_clip and self.publish.enabled:
            yield (
                "method.ct_clip: found true; what it trains inside the vision tower cannot be served, so"
                " publish.enabled must be false"
            )
        if self.client.augment != "none" and method.family != "clip":
            yield f"client.augment: found {self.client.augment!r}; {method.name} allows none"

    def _private_misfits_of(self, method: Method[Any]) -> Iterator[str]:
        if self.privacy.dp is None:
            return
        if isinstance(method, Local) or (isinstance(method, PFedMoAP) and method.alone):
            yield f"privacy.dp: {method.name} uploads nothing that it could make private; null is allowed"
        elif method.family != "clip" or type(method).loss is not Method.loss:
            yield f"privacy.dp: {method.name} has no loss of each example alone; null is allowed"
        if isinstance(self.method, PFedPromptOptions) and self.method.opt_in:
            yield (
                f"method.opt_in: found {self.method.opt_in!r} with privacy.dp; a published memory holds training "
                "features as they are, so () is allowed"
            )
        if self.client.clip_norm is not None:
            yield (
                f"client.clip_norm: found {self.client.clip_norm:g} with privacy.dp, which clips each example's "
                "gradient to privacy.dp.clip_norm; null is allowed"
            )
        if self.client.augment != "none":
            yield f"client.augment: found {self.client.augment!r} with privacy.dp, which allows none"
