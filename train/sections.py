"""The sections of a configuration that belong to no method and to no data."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from train.section import Section


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
