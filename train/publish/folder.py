"""``python -m train.publish FOLDER --client ID``: a LoRA from anywhere, of PEFT or of a merge, as a version.

It is checked against the base that it is to be served over, before anything is written, and published as one plain LoRA
of scale 1 over modules' names, whatever PEFT's configuration says in other words.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

from adapters_store.bases.frozen import base_id, clip_base_id
from adapters_store.bases.llava import chat_template, check_llava, find_llava
from adapters_store.bases.lora_fit import check_linears, linear_shapes
from adapters_store.paths import GLOBAL, check_client, default_store, resolve
from adapters_store.pictures.processors import of_llava
from adapters_store.pictures.transform import ImageTransform
from adapters_store.store import Store, StoreError
from adapters_store.versions.manifest import BaseRef, Manifest, Trust
from train.merge.adapter_config import CONFIG, WEIGHTS
from train.merge.adapter_files import AdapterFile, write_peft

PROGRAM: Final = "python -m train.publish"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@dataclass(frozen=True)
class Over:
    """What a manifest says of the base."""

    family: Literal["mllm", "clip"]
    base: BaseRef
    image_transform: ImageTransform
    prompt_template: str


def main(argv: Sequence[str] | None = None) -> int:
    """Publishes as the arguments say; 0, or 2 after one sentence on standard error where that cannot be."""
    try:
        version, store = publish_folder(parser().parse_args(argv))
    except (ValueError, OSError, StoreError) as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"published {version} to {store}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = _Parser(prog=PROGRAM, description="Publishes a LoRA from anywhere as a version of a client.")
    parser.add_argument("folder", type=Path, help="PEFT's: adapter_config.json and adapter_model.safetensors")
    parser.add_argument(
        "--client", required=True, metavar="ID", help=f"whose version it is; {GLOBAL!r}: the shared one's"
    )
    parser.add_argument("--store", type=Path, help="the store (default: as serving's)")
    parser.add_argument(
        "--base",
        default="bases/tiny/llava",
        metavar="BASE",
        help="what it was trained over: a LLaVA's folder or name in the cache, an open_clip folder, or a model of"
        " open_clip by name (default: bases/tiny/llava)",
    )
    parser.add_argument("--pretrained", metavar="TAG", help="weights of an open_clip model by name: a tag or a file")
    parser.add_argument(
        "--quantization", choices=("nf4", "none"), default="nf4", help="of a LLaVA's layers in training (default: nf4)"
    )
    parser.add_argument("--classes", nargs="+", default=[], metavar="NAME", help="that a LoRA of a CLIP answers with")
    parser.add_argument(
        "--prompt-template", metavar="TEXT", help="a LLaVA's chat template, or a CLIP's text of a class"
    )
    parser.add_argument("--method", default="imported", metavar="NAME", help="how it was made (default: imported)")
    parser.add_argument("--no-activate", action="store_true", help="leave what answers now as it is")
    return parser


def publish_folder(given: argparse.Namespace) -> tuple[str, Path]:
    """``client@version`` and the store it is in. ValueError or StoreError with one sentence where it is refused."""
    check_client(given.client)
    if not all((given.folder / name).is_file() for name in (CONFIG, WEIGHTS)):
        raise ValueError(f"folder: found {given.folder}; one with {CONFIG} and {WEIGHTS} is needed")
    adapter = AdapterFile(given.folder)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder)
        write_peft(plain, adapter, adapter.rank, ((name, adapter[name]) for name in adapter.names), base=given.base)
        files = {name: (plain / name).read_bytes() for name in (CONFIG, WEIGHTS)}
        over = _over_clip(given, files) if _is_clip(given) else _over_llava(given, plain)
    manifest = Manifest(
        client=given.client,
        role="global" if given.client == GLOBAL else "personal",
        family=over.family,
        method=given.method,
        base=over.base,
        rank=adapter.rank,
        target_modules=json.loads(files[CONFIG])["target_modules"],
        image_transform=over.image_transform,
        prompt_template=given.prompt_template or over.prompt_template,
        class_names=given.classes,
        trust=Trust(serving_host=["personal LoRA"]),
    )
    store = Store(resolve(given.store) if given.store else default_store())
    report = {"imported_from": given.folder.name}
    version = store.publish(manifest, files, report, activate=not given.no_activate)
    return f"{given.client}@{version}", store.root


def _is_clip(given: argparse.Namespace) -> bool:
    return given.pretrained is not None or (resolve(given.base) / "open_clip_config.json").is_file()


def _over_llava(given: argparse.Namespace, adapter: Path) -> Over:
    folder = find_llava(given.base)
    check_llava(folder)
    check_linears(adapter, linear_shapes(folder))
    if given.classes:
        raise ValueError("--classes: are for a LoRA of a CLIP; a LLaVA answers questions")
    quantization: Literal["nf4"] | None = "nf4" if given.quantization == "nf4" else None
    base = BaseRef(id=base_id(folder, quantization), name=given.base, quantization=quantization)
    return Over("mllm", base, of_llava(folder), chat_template(folder))


def _over_clip(given: argparse.Namespace, files: dict[str, bytes]) -> Over:
    from adapters_store.personal.clip import load_clip  # slow to import, and a LLaVA's adapter does not need it
    from adapters_store.personal.vision_lora import check_vision_fit, read_vision_lora, vision_deltas

    if not given.classes:
        raise ValueError("--classes: missing; a LoRA of a CLIP answers with the classes that are named")
    found = resolve(given.base)
    source = found if found.is_dir() else given.base
    clip = load_clip(source, given.pretrained)
    check_vision_fit(clip, vision_deltas(*read_vision_lora(files)))
    base = BaseRef(id=clip_base_id(source, given.pretrained), name=given.base)
    return Over("clip", base, clip.image_transform, "a photo of a {class}.")
