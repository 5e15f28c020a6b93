"""The base's model card, written from training.json and evaluation.json."""

import json
from pathlib import Path
from typing import Any, Final

from train.data.world.vocabulary import HELD_OUT_STYLES, PROMPT_TEMPLATE, PUBLIC_STYLES

FLOORS: Final[dict[str, tuple[float, float]]] = {
    "joint_public": (0.90, 0.96),
    "digits_rendered": (0.80, 0.93),
    "digits_handwritten": (0.40, 0.65),
    "colour": (0.93, 0.98),
    "shape": (0.90, 0.95),
    "count": (0.96, 0.99),
    "exists": (0.92, 0.98),
    "caption": (0.65, 0.85),
    "position": (0.80, 0.92),
    "relation": (0.75, 0.90),
    "ground": (0.85, 0.95),
    "digit": (0.80, 0.95),
}
"""Floor, which a test asserts, and aim of each accuracy."""
HELD_OUT_CEILING: Final = 0.50
"""Highest mean zero-shot accuracy on the held-out styles: room to personalise."""
NF4_CEILING: Final = 0.03
"""Highest accuracy that NF4 may cost in any task."""

TITLES: Final = {
    "joint_public": "CLIP, public styles: shape or digit, and colour, of 160 pairs",
    "digits_rendered": "CLIP, rendered digits, of 10",
    "digits_handwritten": "CLIP, real handwritten digits (test share), of 10",
    "colour": "LLaVA: what colour",
    "shape": "LLaVA: what shape",
    "count": "LLaVA: how many",
    "exists": "LLaVA: is there",
    "caption": "LLaVA: caption, word for word",
    "position": "LLaVA: where, of nine thirds",
    "relation": "LLaVA: left, right, above, below (yes or no)",
    "ground": "LLaVA: box, IoU at least 0.5",
    "region": "LLaVA: what is in this box",
    "digit": "LLaVA: what digit",
}


def _table(results: dict[str, Any]) -> list[str]:
    clip, llava = results["clip"], results["llava"]
    lines = ["| task | accuracy | with NF4 | floor | aim |", "|---|---|---|---|---|"]
    for key, title in TITLES.items():
        floor, aim = FLOORS.get(key, (None, None))
        value = clip[key] if key in clip else llava["public"][key]
        quantised = "" if key in clip else f"{llava['public_nf4'][key]:.3f}"
        limits = " | ".join("" if limit is None else f"{limit:.2f}" for limit in (floor, aim))
        lines.append(f"| {title} | {value:.3f} | {quantised} | {limits} |")
    return lines


def _styles(results: dict[str, Any]) -> list[str]:
    clip, held_out = results["clip"], results["llava"]["held_out"]
    lines = [f"| style | CLIP joint | {' | '.join(held_out)} |", "|---" * (2 + len(held_out)) + "|"]
    lines += [f"| {style} | {clip['joint'][style]:.3f} |{' |' * len(held_out)}" for style in PUBLIC_STYLES]
    for style in HELD_OUT_STYLES:
        cells = " | ".join(f"{held_out[task][style]:.3f}" for task in held_out)
        lines.append(f"| {style} | {clip['joint'][style]:.3f} | {cells} |")
    lines.append(f"| held-out mean | {clip['joint_held_out']:.3f} |{' |' * len(held_out)}")
    return lines


def _training(training: dict[str, Any]) -> list[str]:
    lines = ["| stage | command | seed | steps | minutes | hardware | torch |", "|---|---|---|---|---|---|---|"]
    for name, made in training.items():
        cells = (made["seed"], made["steps"], made["minutes"], made["hardware"], made["torch"])
        lines.append(f"| {name} | `{made['command']}` | {' | '.join(str(cell) for cell in cells)} |")
    notes = [f"{name}: {made['note']}" for name, made in training.items() if made.get("note")]
    return [*lines, *(["", *notes] if notes else [])]


def write_card(folder: Path) -> None:
    """Writes README.md beside the two models."""
    training, results = (
        json.loads((folder / name).read_text(encoding="utf-8")) for name in ("training.json", "evaluation.json")
    )
    lines = [
        "# bases/tiny: the embedded base",
        "",
        "Written by `train/pretrain.py`; made from nothing, on pictures that `train/data` renders; no other data.",
        "",
        f"- `clip/`: an open_clip CLIP, 64 px. Zero-shot prompt: `{PROMPT_TEMPLATE}`",
        "- `llava/`: a Hugging Face LLaVA whose vision tower is that CLIP's; 64 image tokens; its chat template is the"
        " only definition of the prompt. It knows the ten shapes, ten digits and eight colours of"
        " `train/data/world/vocabulary.py` and answers questions put as in `train/data/world/questions.py`; boxes are"
        " `box x0 y0 x1 y1`, inclusive, 0–63.",
        "- Weights are fp16. Tokens: every word of that world is one token, other words are spelt in letters.",
        "",
        "## How it was made",
        "",
        *_training(training),
        "",
        "Wall-clock budgets end the schedule, so a second run differs; `--steps` makes it repeatable on one machine.",
        "",
        "## How good it is",
        "",
        f"`python train/pretrain.py evaluate`: {results['llava']['questions_per_task']} questions a task in the public"
        f" styles ({', '.join(PUBLIC_STYLES)}), {results['clip']['images_per_style']} images a style, greedy answers.",
        "",
        *_table(results),
        "",
        "Zero-shot by style; the held-out ones are what a client personalises on:",
        "",
        *_styles(results),
        "",
        "## Limits",
        "",
        "A test bed, not an assistant: it knows nothing but coloured shapes and digits, answers one turn at a time, and"
        " does poorly outside its public styles by design.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
