"""The manifest of a version: everything serving depends on, and the digest that names the version."""

import hashlib
import json
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from adapters_store import limits
from adapters_store.errors import shown
from adapters_store.paths import GLOBAL, check_client, check_file_name
from adapters_store.pictures.transform import ImageTransform
from adapters_store.versions.target_modules import TargetModules

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex16 = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Family = Literal["mllm", "clip"]  # what a version answers: questions about pictures, or which class a picture is of
FAMILIES: tuple[Family, ...] = get_args(Family)
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_CHARS)]
Statements = Annotated[list[Name], Field(max_length=limits.STATEMENTS)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Frozen):
    """One file of a version: what it must hash to, and its size in bytes."""

    sha256: Sha256
    bytes: Annotated[int, Field(ge=0, le=limits.VERSION_BYTES)]


class BaseRef(_Frozen):
    """The frozen base an adapter was trained over: its identity, the name it was loaded by, its quantisation."""

    id: Hex16
    name: Name
    quantization: Literal["nf4"] | None = None


class Trust(_Frozen):
    """Who saw what of this adapter's making, in words: the aggregator, the serving host, the client alone."""

    aggregator: Statements = []
    serving_host: Statements = []
    client_only: Statements = []


class Privacy(_Frozen):
    """What example-level (ε, δ) differential privacy holds for, and by which clipping and noise."""

    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    noise_multiplier: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    clip_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    accountant: Literal["pld"]
    covers: Literal["uploads"]


class Manifest(_Frozen):
    """What a version is. ``files`` is filled in by ``Store.publish``; the rest comes from the run that made it."""

    schema_version: Literal[1] = 1
    client: Annotated[str, AfterValidator(check_client)]
    role: Literal["personal", "global"]
    family: Family
    method: Name
    base: BaseRef
    files: Annotated[
        dict[Annotated[str, AfterValidator(check_file_name)], FileEntry], Field(max_length=limits.FILES)
    ] = {}
    rank: Annotated[int, Field(ge=1, le=limits.RANK)] | None = None
    target_modules: TargetModules | None = None
    image_transform: ImageTransform
    prompt_template: Annotated[str, Field(min_length=1, max_length=limits.TEMPLATE_CHARS)]
    class_names: Annotated[
        list[Annotated[str, Field(max_length=limits.CLASS_NAME_CHARS)]], Field(max_length=limits.CLASS_NAMES)
    ] = []
    trust: Trust = Trust()
    privacy: Privacy | None = None  # left out of the JSON where None: versions from before it existed keep their names

    @model_validator(mode="after")
    def _consistent(self) -> "Manifest":
        if (self.role == "global") != (self.client == GLOBAL):
            raise ValueError(f"role {self.role!r} does not fit client {self.client!r}: the role of 'global' is global")
        if self.family == "clip" and not self.class_names:
            raise ValueError("class_names is empty: a clip version names the classes it answers with")
        if (size := sum(entry.bytes for entry in self.files.values())) > limits.VERSION_BYTES:
            raise ValueError(f"files have {size} bytes in all: at most {limits.VERSION_BYTES} are allowed")
        return self

    def canonical_json(self) -> bytes:
        """The one spelling of this manifest that is hashed and written: sorted keys, no spaces, UTF-8."""
        fields = self.model_dump(mode="json", exclude={"privacy"} if self.privacy is None else None)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    @property
    def version(self) -> str:
        """The first 16 hex digits of the SHA-256 of ``canonical_json``, so that equal content is one version."""
        return hashlib.sha256(self.canonical_json()).hexdigest()[:16]


def first_reason(error: ValidationError) -> str:
    """The first complaint of a validation, as half a sentence that names the field, what is allowed, what was found."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the whole"
    if first["type"] == "value_error":  # our own sentences name the field themselves
        return first["msg"].removeprefix("Value error, ")
    return f"{field}: {first['msg']}, found {shown(first['input'])}"
