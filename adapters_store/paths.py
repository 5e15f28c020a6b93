"""Where the store is, and which names may become part of a path in it."""

import os
import re
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
CLIENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
VERSION_ID = re.compile(r"[0-9a-f]{16}")
GLOBAL = "global"  # the client id under which a federation's shared model is published
RESERVED = ("base",)  # the model name under which serving offers the base without an adapter

# What a version may hold beside manifest.json and report.json. Nothing here is a pickle, and nothing leaves its folder.
FILE_NAME = re.compile(
    r"adapter_config\.json|adapter_model\.safetensors|prompt\.safetensors|connector\.safetensors"
    r"|encoder_[a-z0-9]{1,32}/(?:adapter_config\.json|adapter_model\.safetensors)"
)


def default_store() -> Path:
    """The store used when none is named: ``$FEDTAILOR_STORE``, else ``adapters_store/published`` of this project."""
    named = os.environ.get("FEDTAILOR_STORE")
    return resolve(named) if named else PROJECT_ROOT / "adapters_store" / "published"


def resolve(path: str | Path) -> Path:
    """The path as given if it exists from the working directory, else the same path from the project's root."""
    given = Path(path).expanduser()
    return given if given.is_absolute() or given.exists() else PROJECT_ROOT / given


def check_client(client: str) -> str:
    """The client id itself; ValueError with one sentence where it may not name a folder of the store."""
    if not isinstance(client, str) or not CLIENT_ID.fullmatch(client):
        raise ValueError(f"client id {client!r} is not allowed: 1 to 63 of a-z, 0-9, _ and -, starting with a-z or 0-9")
    if client in RESERVED:
        raise ValueError(f"client id {client!r} is reserved for the model without an adapter")
    return client


def check_version(version: str) -> str:
    """The version itself; ValueError with one sentence where it is not 16 lower-case hexadecimal digits."""
    if not isinstance(version, str) or not VERSION_ID.fullmatch(version):
        raise ValueError(f"version {version!r} is not allowed: a version is 16 digits of 0-9 and a-f")
    return version


def check_file_name(name: str) -> str:
    """The file name itself; ValueError with one sentence where a version may not hold a file of that name."""
    if not FILE_NAME.fullmatch(name):
        raise ValueError(
            f"file {name!r} is not allowed in a version: adapter_config.json, adapter_model.safetensors, "
            "prompt.safetensors, connector.safetensors, and the first two under encoder_<modality>/"
        )
    return name
