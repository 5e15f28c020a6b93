"""Everything about the gateway that can be set: by command line, by ``FEDTAILOR_*`` variables, else these defaults."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from adapters_store.bases.llava import check_llava, find_llava
from adapters_store.paths import default_store, resolve

MIB = 1 << 20


class Settings(BaseSettings):
    """Gateway and engine of one base. Paths are taken from the working directory, else from the project's folder."""

    model_config = SettingsConfigDict(
        env_prefix="FEDTAILOR_", extra="forbid", frozen=True, cli_prog_name="python -m serve", cli_kebab_case=True
    )

    store: Path = Field(default_factory=default_store, description="store of published versions; holds keys.json too")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=1, le=65535, description="port to listen on")
    base: Path | None = Field(
        Path("bases/tiny/llava"),
        description="LLaVA answered over: a folder, or its name in Hugging Face's cache; 'none': no engine",
    )
    clip: str | None = Field(
        "bases/tiny/clip", description="open_clip folder, or model by name, classified over; 'none': without"
    )
    clip_pretrained: str | None = Field(
        None, description="weights of a model by name: a file, or a tag of open_clip's", validate_default=True
    )
    quantization: Literal["nf4", "none"] = Field("nf4", description="what training did to the base's language model")
    exports: Path = Field(Path("bases/.exports"), description="where the dequantised base is kept between starts")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="numbers the engine computes in")

    max_lora_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = Field(16, description="largest rank served")
    max_update_ratio: float = Field(100, gt=0, description="largest norm of a LoRA's update, in norms of its linear")
    max_loras: int = Field(8, ge=2, description="adapters in one batch of the engine")
    max_cpu_loras: int = Field(64, ge=2, description="adapters the engine keeps in memory; others are read again")
    max_model_len: int | None = Field(
        None, ge=64, description="prompt and answer together, in tokens; default: the base's"
    )
    max_num_seqs: int = Field(32, ge=1, description="answers the engine works on at once")
    kv_cache_gib: int = Field(1, ge=1, description="memory for attention caches, in GiB (CPU engine)")
    gpu_memory_utilization: float = Field(0.85, gt=0, le=1, description="share of the GPU's memory (CUDA engine)")
    engine_threads: int = Field(1, ge=1, description="CPU threads of the engine's tensor work")
    engine_args: list[str] = Field([], description="further arguments for vLLM's API server, as a JSON list")
    engine_log: Path | None = Field(None, description="file for the engine's output; default: in the private folder")
    engine_start_timeout_s: float = Field(600, gt=0, description="seconds the engine may take to start")
    stop_grace_s: float = Field(5, gt=0, description="seconds the engine gets to end by itself")

    encoder_device: Literal["cpu", "cuda"] = Field("cpu", description="where the gateway encodes images")
    torch_threads: int = Field(1, ge=1, description="CPU threads of the gateway's own tensor work")
    max_wait_ms: float = Field(2, ge=0, description="milliseconds an image waits for others to share its batch")
    max_batch: int = Field(16, ge=1, description="images in one batch of an encoder")
    cache_mib: int = Field(256, ge=0, description="memory for encoded images, in MiB")
    connector_mib: int = Field(1024, ge=0, description="memory for clients' connectors, in MiB; others are read again")
    text_cache_mib: int = Field(64, ge=0, description="memory for class names encoded on request, in MiB")
    zero_shot_template: str = Field(
        "a photo of a {class}.", description="text of a class that a request names itself (CLIP)"
    )

    watch_interval_s: float = Field(0.5, gt=0, description="seconds between two looks at the store")
    retry_refused_s: float = Field(30, gt=0, description="seconds until a refused version is looked at again")
    answer_timeout_s: float = Field(300, gt=0, description="seconds the engine may be silent during an answer")

    max_body_bytes: int = Field(32 * MIB, ge=1024, description="largest request body")
    max_image_bytes: int = Field(8 * MIB, ge=1024, description="largest image file")
    max_image_pixels: int = Field(4096 * 4096, ge=1, description="largest image, width times height")
    max_image_side: int = Field(8192, ge=1, description="longest side of an image, in pixels")
    max_images: int = Field(8, ge=1, description="images in one conversation")
    max_request_pixels: int = Field(4 * 4096 * 4096, ge=1, description="pixels of all images in one conversation")
    decode_threads: int = Field(2, ge=1, description="images decoded at once; one key has one of them decoded")
    max_connections: int = Field(1024, ge=1, description="connections at once; the slowest sender makes room")
    header_timeout_s: float = Field(20, gt=0, description="seconds a connection may take for a header, or be idle")
    max_in_flight: int = Field(64, ge=2, description="answers worked on at once; one key alone gets half of them")
    key_share: int = Field(4, ge=1, description="answers of one key at once while other keys ask too")
    client_share: int = Field(8, ge=1, description="answers of one client's model at once while others are asked too")
    max_waiting: int = Field(
        128, ge=1, description="requests of one key that wait for their turn; further ones get 429"
    )

    default_max_tokens: int = Field(256, ge=1, description="answer length where the request names none")
    default_temperature: float = Field(0.0, ge=0, le=2, description="where the request names none; 0 is greedy")

    @field_validator("base", "clip", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value in ("none", "") else value

    @field_validator("clip", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @field_validator("exports")
    @classmethod
    def _found(cls, value: Path) -> Path:
        return resolve(value)

    @field_validator("base")
    @classmethod
    def _understood(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        try:
            folder = find_llava(value)
        except FileNotFoundError as error:
            raise ValueError(str(error)) from error
        check_llava(folder)
        return folder

    @field_validator("clip")
    @classmethod
    def _folder_or_name(cls, value: str | None) -> str | None:
        if value is None or resolve(value).is_dir():
            return None if value is None else str(resolve(value))
        if "/" in value:
            raise ValueError(f"folder '{value}' does not exist")
        return value

    @field_validator("clip_pretrained")
    @classmethod
    def _weights(cls, value: str | None, known: ValidationInfo) -> str | None:
        clip = known.data.get("clip")
        named = clip is not None and not Path(clip).is_dir()
        if named and value is None:
            raise ValueError(f"'{clip}' is no folder; a model of open_clip by that name needs a tag or file of weights")
        if not named and value is not None:
            raise ValueError(f"found '{value}', but only a model by name takes weights, and --clip is '{clip}'")
        return str(resolve(value)) if value is not None and resolve(value).is_file() else value

    @field_validator("zero_shot_template")
    @classmethod
    def _has_class(cls, value: str) -> str:
        if "{class}" not in value:
            raise ValueError(f"found '{value}', which has no {{class}} in it")
        return value

    @property
    def nf4(self) -> Literal["nf4"] | None:
        """The quantisation as the base's identity wants it."""
        return "nf4" if self.quantization == "nf4" else None
