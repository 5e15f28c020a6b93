"""A LLaVA's folder: found by path or by its name in Hugging Face's cache, and refused where it holds something else."""

import json
from pathlib import Path
from typing import Any

from adapters_store.paths import resolve

KIND = "llava"
TEMPLATES = (("chat_template.jinja", None), ("chat_template.json", "chat_template"),
             ("tokenizer_config.json", "chat_template"))  # fmt: skip


def find_llava(name: str | Path) -> Path:
    """The folder, if one is there, else the snapshot of the model of that name in the local cache; nothing is fetched.

    Raises FileNotFoundError with a sentence where there is neither.
    """
    folder = resolve(name)
    if folder.is_dir():
        return folder
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), local_files_only=True))
    except HFValidationError:
        raise FileNotFoundError(f"base {str(name)!r} is no folder, and cannot be the name of a model") from None
    except LocalEntryNotFoundError:
        raise FileNotFoundError(
            f"base {str(name)!r} is no folder, and no model of that name is in the cache {constants.HF_HUB_CACHE}; "
            f"where there is a network, `hf download {name}` puts it there"
        ) from None


def check_llava(folder: Path) -> None:
    """Raises ValueError with one sentence unless the folder holds a LLaVA as this project understands one."""
    config = _read(folder, "config.json")
    if (kind := config.get("model_type")) != KIND:
        raise ValueError(f"base {str(folder)!r} is of model_type {kind!r}: only {KIND!r} is understood")
    image = config.get("image_token_index", config.get("image_token_id"))
    added = {token["id"]: token["content"] for token in _read(folder, "tokenizer.json")["added_tokens"]}
    if image not in added:
        raise ValueError(f"base {str(folder)!r}: its tokenizer has no token {image}, the image's place in a prompt")
    chat_template(folder)


def model_type(folder: Path) -> str | None:
    """Of the folder's config.json; None where it says none."""
    path = folder / "config.json"
    return json.loads(path.read_text()).get("model_type") if path.is_file() else None


def chat_template(folder: Path) -> str:
    """The prompt template of the folder, from where Hugging Face's tokenizers and processors keep it."""
    for name, field in TEMPLATES:
        path = folder / name
        if path.exists():
            found = path.read_text() if field is None else json.loads(path.read_text()).get(field)
            if found:
                return str(found)
    raise ValueError(f"base {str(folder)!r} has no chat template (chat_template.jinja or tokenizer_config.json)")


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        raise ValueError(f"base {str(folder)!r} holds no {name}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found
