"""What a run is told, validated once and frozen: a YAML file, overridden by ``--section.field value``."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator

from train.data import DataConfig
from train.methods import Options, build_method
from train.methods.base import Method
from train.methods.local import Local
from train.methods.pfedmoap import PFedMoAP
from train.methods.pfedprompt import PFedPromptOptions
from train.methods.pilot import PilotOptions
from train.section import Section, misfits_within


class BaseConfig(Section):
    """The frozen base."""

    path: str = Field(
        description="folder of the base (Hugging Face LLaVA, or open_clip), from here or the project root; or the name "
        "of an open_clip model, such as ViT-B-16"
    )
    pretrained: str | None = Field(None, description="weights of a CLIP given by name: a tag of open_clip, or a file")
    load_in_4bit: bool = Field(True, description="NF4 with double quantisation for the language model's layers")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="compute type of the language model")
    zero_shot_template: str = Field("a photo of a {class}.", description="CLIP: text of a class without a prompt")
    cache_mib: float = Field(512.0, gt=0, description="memory for image features; on disk, 16 times that")
    cache_folder: str | None = Field(None, description="keeps image features for later runs in this folder")

    @field_validator("zero_shot_template")
    @classmethod
    def _has_class(cls, value: str) -> str:
        if "{class}" not in value:
            raise ValueError("{class} is missing, the place of the class's name")
        return value


class FederationConfig(Section):
    """Rounds and who takes part."""

    rounds: int = Field(3, ge=1, description="federated rounds")
    clients_per_round: int | None = Field(None, ge=1, description="clients drawn for each round; all by default")
    round_timeout: float = Field(
        3600.0, gt=0, description="seconds a client has for one exchange before it is left out"
    )
    processes: int | None = Field(None, ge=1, description="world size the run must have; another one is an error")
    threads: int | None = Field(None, ge=1, description="torch threads a process; by default cores ÷ processes")


class ClientConfig(Section):
    """Local training."""

    local_steps: int | None = Field(None, ge=1, description="optimiser steps in one exchange; or give local_epochs")
    local_epochs: int | None = Field(None, ge=1, description="passes over the client's data in one exchange")
    personal_steps: int = Field(0, ge=0, description="steps on the client's own data after the last round")
    batch_size: int = Field(16, ge=1, description="examples a step")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="a new one every exchange; SGD has momentum 0.9")
    lr: float = Field(1e-3, gt=0, description="peak learning rate")
    weight_decay: float = Field(0.0, ge=0, description="decoupled for AdamW, L2 for SGD")
    schedule: Literal["constant", "cosine", "cosine_epochs"] = Field(
        "cosine", description="within one exchange; cosine_epochs: one rate an epoch, the first of several at 1e-5"
    )
    personal_lr: float | None = Field(None, gt=0, description="peak learning rate of the personal steps; lr by default")
    clip_norm: float | None = Field(1.0, gt=0, description="gradient norm limit")
    augment: Literal["none", "crop_flip"] = Field(
        "none", description="CLIP: crop_flip crops and mirrors every image at random; features are then not cached"
    )

    def misfits(self) -> Iterator[str]:
        if (self.local_steps is None) == (self.local_epochs is None):
            found = "neither" if self.local_steps is None else "both"
            yield f"local_steps: found {found}; give exactly one of client.local_steps and client.local_epochs"
        if self.schedule == "cosine_epochs" and self.local_epochs is None:
            yield "schedule: found 'cosine_epochs', which needs client.local_epochs"


class DPConfig(Section):
    """Example-level differential privacy of what every client uploads; docs/privacy.md says what that covers."""

    clip_norm: float = Field(gt=0, description="C, largest norm of one example's gradient over all that trains")
    noise_multiplier: float | None = Field(
        None, ge=0.1, description="σ, noise over C for a sum of gradients; or give target_epsilon"
    )
    target_epsilon: float | None = Field(
        None, gt=0, description="ε of every client; the least noise that keeps it is then found for each"
    )
    delta: float = Field(1e-5, ge=1e-12, lt=1, description="δ at which ε is stated; below 1 ÷ a client's examples")
    secure: bool = Field(
        False, description="draws from a secret of the operating system, not from seed: what a deployment needs"
    )

    def misfits(self) -> Iterator[str]:
        if (self.noise_multiplier is None) == (self.target_epsilon is None):
            found = "neither" if self.noise_multiplier is None else "both"
            yield (
                f"noise_multiplier: found {found}; give exactly one of privacy.dp.noise_multiplier and"
                " privacy.dp.target_epsilon"
            )


class PrivacyConfig(Section):
    """What protects the clients' examples beyond their staying where they are."""

    dp: DPConfig | None = Field(None, description="differential privacy of the uploads; none by default")


class EvaluateConfig(Section):
    """What is measured at the end."""

    split: Literal["test", "val"] = Field("test", description="the clients' examples it is measured on; tune on val")
    references: tuple[Literal["zero_shot", "local"], ...] = Field(
        ("zero_shot", "local"), description="rows to compare with; local trains once more without communication"
    )
    max_new_tokens: int = Field(32, ge=1, description="longest answer")


class PublishConfig(Section):
    """Where the versions go."""

    store: str | None = Field(None, description="adapter store; adapters_store/published by default")
    activate: bool = Field(True, description="make the new versions live")
    enabled: bool = Field(True, description="false: evaluate only")


class TrackingConfig(Section):
    """Experiment trackers, through accelerate."""

    report_to: Literal["tensorboard", "trackio", "wandb", "mlflow"] | None = Field(None, description="none by default")
    project: str = Field("fedtailor", description="name of the project in the tracker")


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
