"""An adapter's ``adapter_config.json``: what serving reads of it, and which of PEFT's options it does not support."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters_store import limits
from adapters_store.disk.bounded_json import parse_json
from adapters_store.errors import StoreError, shown
from adapters_store.versions.manifest import first_reason
from adapters_store.versions.target_modules import TargetModules

# PEFT options that vLLM refuses or drops in silence, with the only values allowed.
PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "target_parameters": (None, []),
    "trainable_token_indices": (None, {}, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
    "use_bdlora": (False, None),
}


class PeftConfig(BaseModel):
    """The fields of a LoRA that serving goes by; PEFT has many more, and most of them are of training alone."""

    model_config = ConfigDict(frozen=True, strict=True)

    peft_type: Literal["LORA"]
    r: Annotated[int, Field(ge=1, le=limits.RANK)]
    lora_alpha: Annotated[float, Field(gt=0, le=limits.ALPHA)]
    target_modules: TargetModules
    use_rslora: bool | None = None


def parse_config(path: str, data: bytes) -> PeftConfig:
    """Raises StoreError, with a sentence that names the file ``path`` and the field, where it is no plain LoRA's."""
    try:
        document = parse_json(data)
        config = PeftConfig.model_validate(document)
    except ValidationError as error:
        raise StoreError(f"file {path} is no LoRA's configuration ({first_reason(error)})") from error
    except ValueError as error:
        raise StoreError(f"file {path} is no LoRA's configuration ({error})") from error
    for option, allowed in PLAIN.items():
        if document.get(option) not in allowed:
            raise StoreError(f"file {path} has {option} {shown(document[option])}, which serving does not support")
    return config
