"""Artefacts made to hurt: each is put into a store by hand, as somebody with write access to one client's folder would.

``FORGERIES``: name → function of (the sound files of a version, its manifest as a dictionary) that returns what lies in
the version's folder: bytes by file name, or a function that makes a special file. What has a manifest of its own has
the name that belongs to it, so that the name is never what gives a forgery away, unless that is the forgery.
"""

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from adapters_store.store import Store
from tests.adapters_store.damage import BYTES, SPECIAL
from tests.serve.artefacts import Tensors, connector_tensors, lora_files, lora_manifest

WEIGHTS, CONFIG, MANIFEST, REPORT = "adapter_model.safetensors", "adapter_config.json", "manifest.json", "report.json"
Put = bytes | Callable[[Path], None]
Fields = dict[str, Any]
Forgery = Callable[[dict[str, bytes], Fields], dict[str, Put]]

DEEP = b"[" * 100_000 + b"]" * 100_000
LOOPS = "".join(f"{{% for {x} in range(99999) %}}" for x in "abc") + "x" + "{% endfor %}" * 3
HUGE = torch.finfo(torch.float32).max


def put(store: Store, client: str, forgery: Forgery, seed: int) -> str:
    """Puts a forged version into the client's folder and has the pointer name it; the version."""
    files, fields = lora_files(seed), json.loads(lora_manifest(client).canonical_json())
    made: dict[str, Put] = {**files, REPORT: b'{"published": "2026-01-01T00:00:00.000000+00:00"}'}
    made |= forgery(files, fields)
    if MANIFEST not in made:
        listed = {name: data for name, data in made.items() if name != REPORT and isinstance(data, bytes)}
        fields["files"] = {name: entry(data) for name, data in sorted(listed.items())} | fields["files"]
        made[MANIFEST] = canonical(fields)
    named = made[MANIFEST]
    version = hashlib.sha256(named if isinstance(named, bytes) else b"").hexdigest()[:16]
    write(store.root / client / version, made)
    point(store, client, version)
    return version


def write(folder: Path, made: dict[str, Put]) -> None:
    """Makes the folder with these files."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(data):
            data(path)
        else:
            path.write_bytes(data)


def point(store: Store, client: str, version: str) -> None:
    """Has the client's pointer name the version, with what was live before it to go back to."""
    live = store.live(client)
    assert live is not None
    previous = [*(v for v in live.previous if v != version), live.version]
    pointer = {"version": version, "previous": previous[:1]}
    (store.root / client / "live-mllm.json").write_text(json.dumps(pointer))


def entry(data: bytes) -> dict[str, Any]:
    """What a manifest says of a file."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def canonical(fields: Fields) -> bytes:
    """A manifest as it is hashed."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def weights(change: Callable[[Tensors], Tensors]) -> Forgery:
    """Other tensors."""
    return lambda files, _: {WEIGHTS: packed(change(load(files[WEIGHTS])))}


def packed(tensors: Tensors) -> bytes:
    """A safetensors file of them."""
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def raw_weights(change: Callable[[bytes], bytes]) -> Forgery:
    """Another file of tensors, byte for byte."""
    return lambda files, _: {WEIGHTS: change(files[WEIGHTS])}


def header(change: Callable[[dict[str, Any]], Any]) -> Forgery:
    """The same values under another header."""

    def changed(data: bytes) -> bytes:
        length = struct.unpack("<Q", data[:8])[0]
        new = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
        return struct.pack("<Q", len(new)) + new + data[8 + length :]

    return raw_weights(changed)


def config(**changed: Any) -> Forgery:
    """Other fields in PEFT's configuration, and in the manifest where it has them too."""

    def forge(files: dict[str, bytes], fields: Fields) -> dict[str, Put]:
        fields |= {"target_modules": changed["target_modules"]} if "target_modules" in changed else {}
        fields |= {"rank": changed["r"]} if "r" in changed else {}
        return {CONFIG: json.dumps(json.loads(files[CONFIG]) | changed).encode()}

    return forge


def fields(**changed: Any) -> Forgery:
    """Other fields in the manifest."""

    def forge(_: dict[str, bytes], manifest: Fields) -> dict[str, Put]:
        manifest |= changed
        return {}

    return forge


def file(name: str, content: Put) -> Forgery:
    """Another file of that name."""
    return lambda _, __: {name: content}


def both(*forgeries: Forgery) -> Forgery:
    """One after the other."""

    def forge(files: dict[str, bytes], manifest: Fields) -> dict[str, Put]:
        made: dict[str, Put] = {}
        for forgery in forgeries:
            made |= forgery({**files, **{n: d for n, d in made.items() if isinstance(d, bytes)}}, manifest)
        return made

    return forge


def first(value: Callable[[torch.Tensor], torch.Tensor], part: str = "") -> Callable[[Tensors], Tensors]:
    """The first tensor with ``part`` in its name, changed."""

    def change(tensors: Tensors) -> Tensors:
        name = next(name for name in sorted(tensors) if part in name)
        return tensors | {name: value(tensors[name])}

    return change


def every(value: Callable[[torch.Tensor], torch.Tensor], part: str = "") -> Callable[[Tensors], Tensors]:
    """Every tensor with ``part`` in its name, changed."""
    return lambda tensors: {name: value(t) if part in name else t for name, t in tensors.items()}


def renamed(old: str, new: str) -> Callable[[Tensors], Tensors]:
    """The tensors under other names."""
    return lambda tensors: {name.replace(old, new): t for name, t in tensors.items()}


def transform(**changed: Any) -> Forgery:
    """Another image transform."""

    def forge(_: dict[str, bytes], manifest: Fields) -> dict[str, Put]:
        manifest["image_transform"] |= changed
        return {}

    return forge


def connector(change: Callable[[Tensors], Tensors]) -> Forgery:
    """A connector beside the LoRA, forged."""
    return lambda _, __: {"connector.safetensors": packed(change(connector_tensors(7)))}


NUMBERS: dict[str, Forgery] = {
    "NaN": weights(first(lambda t: t.fill_(float("nan")))),
    "one NaN": weights(first(lambda t: t.index_fill(0, torch.tensor([0]), float("nan")))),
    "inf": weights(first(lambda t: t.fill_(float("inf")), "lora_B")),
    "-inf": weights(first(lambda t: t.fill_(float("-inf")))),
    "largest float": weights(every(lambda t: t.fill_(HUGE))),
    "product overflows": weights(every(lambda t: t * 1e25)),
    "one module overflows": weights(first(lambda t: t * 1e36, "v_proj.lora_B")),
    "a hundred times too large": weights(every(lambda t: t * 30)),
    "A tiny, B huge": weights(lambda ts: every(lambda t: t * 1e-30, "lora_A")(every(lambda t: t * 1e35, "lora_B")(ts))),
    "half precision infinity": weights(every(lambda t: (t * 1e6).half())),
    "bfloat16 beyond": weights(every(lambda t: (t * 1e18).bfloat16())),
    "float64 beyond float32": weights(every(lambda t: t.double() * 1e200)),
    "alpha infinite": file(
        CONFIG, b'{"peft_type": "LORA", "r": 4, "lora_alpha": Infinity, "target_modules": ["q_proj"]}'
    ),
    "alpha NaN": file(CONFIG, b'{"peft_type": "LORA", "r": 4, "lora_alpha": NaN, "target_modules": ["q_proj"]}'),
    "alpha huge": config(lora_alpha=1e300),
    "alpha negative": config(lora_alpha=-8),
    "alpha text": config(lora_alpha="8"),
    "alpha true": config(lora_alpha=True),
    "rank true": config(r=True),
    "rank huge": config(r=10**9),
    "rank text": config(r="4"),
    "rsLoRA text": config(use_rslora="yes"),
}
SHAPES: dict[str, Forgery] = {
    "A transposed": weights(every(lambda t: t.T, "lora_A")),
    "three axes": weights(first(lambda t: t[None])),
    "no axis": weights(first(lambda t: t.sum())),
    "zero rows": weights(first(lambda t: t[:0])),
    "A narrower": weights(every(lambda t: t[:, :-8], "lora_A")),
    "B shorter": weights(every(lambda t: t[:-8], "lora_B")),
    "other ranks": weights(first(lambda t: t[:2], "lora_A")),
    "no B": weights(lambda ts: {n: t for n, t in ts.items() if "lora_A" in n}),
    "no tensor": weights(lambda ts: {}),
    "a layer too many": weights(renamed("layers.3.", "layers.99.")),
    "the vision tower": weights(renamed("language_model", "vision_tower")),
    "the head": weights(renamed("layers.0.self_attn.q_proj", "lm_head")),
    "a bias": weights(
        lambda ts: ts | {"base_model.model.model.language_model.layers.0.self_attn.q_proj.bias": torch.ones(4)}
    ),
    "integers": weights(first(lambda t: t.int())),
    "booleans": weights(first(lambda t: t > 0)),
    "60,000 tensors": weights(lambda ts: ts | {f"x{i}": torch.zeros(1) for i in range(60_000)}),
    "a rank beyond the engine's": both(lambda _, __: {**lora_files(3, rank=64)}, fields(rank=64)),
}
SAFETENSORS: dict[str, Forgery] = {
    "cut short": raw_weights(lambda d: d[:-100]),
    "eight bytes": raw_weights(lambda d: d[:8]),
    "nothing": raw_weights(lambda d: b""),
    "a longer header than file": raw_weights(lambda d: struct.pack("<Q", 2**63) + d[8:]),
    "a header of 2^40": raw_weights(lambda d: struct.pack("<Q", 2**40) + d[8:]),
    "a deep header": raw_weights(lambda d: struct.pack("<Q", len(DEEP)) + DEEP),
    "a header that is a list": header(lambda h: [h]),
    "a pickle": raw_weights(lambda d: b"\x80\x04\x95cposix\nsystem\n(S'false'\ntR."),
    "noise": raw_weights(
        lambda d: bytes(torch.randint(0, 256, (5000,), generator=torch.Generator().manual_seed(1)).tolist())
    ),
    "offsets that overlap": header(
        lambda h: {n: e | {"data_offsets": [0, 16]} if "lora_A" in n else e for n, e in h.items()}
    ),
    "offsets beyond": header(lambda h: {n: e | {"data_offsets": [0, 2**50]} for n, e in h.items()}),
    "negative shapes": header(lambda h: {n: e | {"shape": [-4, -256]} for n, e in h.items()}),
    "a name of a megabyte": header(lambda h: h | {"x" * 2**20: next(iter(h.values()))}),
    "an unknown type": header(lambda h: {n: e | {"dtype": "F128"} for n, e in h.items()}),
}
JSONS: dict[str, Forgery] = {
    f"{content} in {name}": file(name, data)
    for name in (MANIFEST, REPORT, CONFIG)
    for content, data in BYTES.items()
    if not (name == REPORT and content in ("not a number", "half"))
} | {
    "published in 9999": file(REPORT, b'{"published": "9999-12-31T23:59:59.999999+00:00"}'),
    "published as a list": file(REPORT, b'{"published": [[]]}'),
    "a report of 40 MB": file(REPORT, b'{"a": "' + b"x" * 40_000_000 + b'"}'),
    "a manifest of 40 MB": file(MANIFEST, b" " * 40_000_000),
    "another client's": fields(client="ann"),
    "a global one": fields(role="global"),
    "an unknown family": fields(family="gguf"),
    "another base": fields(base={"id": "f" * 16, "name": "other", "quantization": None}),
    "an unknown field": fields(exec="rm"),
    "files outside": fields(files={"../../../etc/passwd": entry(b"x")}),
    "a file that is not there": fields(files={"prompt.safetensors": entry(b"x")}),
    "wrong digests": fields(files={WEIGHTS: {"sha256": "0" * 64, "bytes": 5}}),
    "a million class names": fields(class_names=["c"] * 1_000_000),
    "DoRA": config(use_dora=True),
    "modules to save": config(modules_to_save=["lm_head"]),
    "alpha patterns": config(alpha_pattern={"(a+)+$": 1e30}),
    "layer replication": config(layer_replication=[[0, 99]]),
    "another PEFT type": config(peft_type="LOHA"),
}
PATTERNS: dict[str, Forgery] = {
    "a list in a list": config(target_modules=[["q"]]),
    "an open bracket": config(target_modules="("),
    "exponential": config(target_modules=r"((([a-z]+)*)*\.?)*!"),
    "exponential too": config(target_modules=r"(.*)*(.*)*(.*)*(.*)*x"),
    "an object": config(target_modules={"q_proj": 1}),
    "nothing": config(target_modules=None),
    "a number": config(target_modules=7),
    "all linear": config(target_modules="all-linear"),
    "a long pattern": config(target_modules="(a|b)*" * 100_000),
    "a hundred thousand names": config(target_modules=[f"m{i}" for i in range(100_000)]),
}
TEMPLATES: dict[str, Forgery] = {
    "nested loops": fields(prompt_template=LOOPS),
    "memory": fields(prompt_template="{{ 'a' * 10 ** 10 }}"),
    "a huge number": fields(prompt_template="{{ 10 ** (10 ** 8) > 1 }}"),
    "syntax": fields(prompt_template="{% for"),
    "an error": fields(prompt_template="{{ raise_exception('no') }}"),
    "objects": fields(prompt_template="{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "deep": fields(prompt_template="{{" + "(" * 5000 + "1" + ")" * 5000 + "}}"),
    "recursion": fields(prompt_template="{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
    "images of its own": fields(prompt_template="<image><image>{{ messages[0].content }}"),
    "no images": fields(prompt_template="{{ messages[0].content }}"),
    "a megabyte": fields(prompt_template="{# " + "x" * 2**20 + " #}{{ messages }}"),
    "an include": fields(prompt_template="{% include '/etc/passwd' %}"),
}
TRANSFORMS: dict[str, Forgery] = {
    "std 0": transform(std=[0.0, 0.0, 0.0]),
    "std tiny": transform(std=[1e-45, 1, 1]),
    "std negative": transform(std=[-1, 1, 1]),
    "mean huge": transform(mean=[1e38, 0, 0]),
    "a side of a billion": transform(size=10**9),
    "another side": transform(size=63),
    "a side of 0": transform(size=0),
}
CONNECTORS: dict[str, Forgery] = {
    "NaN in a connector": connector(first(lambda t: t.fill_(float("nan")))),
    "a connector that overflows": connector(every(lambda t: t * 1e20)),
    "a connector of another width": connector(every(lambda t: t[..., :-8])),
    "half a connector": connector(lambda ts: dict(list(ts.items())[: len(ts) // 2])),
    "one adapter": connector(lambda ts: {"client.weight_1": torch.ones(3, 3)}),
}
LINKS: dict[str, Forgery] = {
    f"{kind} for {name}": file(name, make) for kind, make in SPECIAL.items() for name in (WEIGHTS, MANIFEST)
} | {
    "a link to a device": file(WEIGHTS, lambda path: path.symlink_to("/dev/zero")),
    "a further file": file("run.py", b"import os"),
    "a pickle beside": file("optimizer.pt", b"\x80\x04."),
}
FORGERIES: dict[str, Forgery] = {
    f"{kind}: {name}": forgery
    for kind, some in {
        "numbers": NUMBERS,
        "shapes": SHAPES,
        "safetensors": SAFETENSORS,
        "JSON": JSONS,
        "patterns": PATTERNS,
        "templates": TEMPLATES,
        "transforms": TRANSFORMS,
        "connectors": CONNECTORS,
        "links": LINKS,
    }.items()
    for name, forgery in some.items()
}
POINTERS: dict[str, Put] = {**BYTES, **SPECIAL, "a version that is not there": b'{"version": "0123456789abcdef"}'}
