"""Makes the embedded base from nothing: `python train/pretrain.py all --out bases/tiny`.

Several processes: `torchrun --nproc_per_node 2 train/pretrain.py …` (they share each batch).
Stages: clip, llava (over that CLIP's tower), all (both, then evaluation and the model card), evaluate, handwriting
(tries ways to enlarge the handwritten digits, on their training share). Progress is saved every two minutes; --resume
continues.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's root takes the place of train/
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import torch
from transformers.utils import logging

import adapters_store  # noqa: F401  (makes torchvision importable, before open_clip)
from train.pretraining import ranks
from train.pretraining.card import write_card
from train.pretraining.clip import Sizes, train_clip
from train.pretraining.evaluation import evaluate_clip, evaluate_llava
from train.pretraining.export import export_clip, export_llava, load_clip, torch_device
from train.pretraining.handwriting import search
from train.pretraining.llava import train_llava
from train.pretraining.loop import Budget, Stage

ROOT = Path(__file__).resolve().parent.parent
SMOKE_STEPS = 3
SMOKE_SIZE = 12


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["clip", "llava", "all", "evaluate", "handwriting"], help="what to make")
    parser.add_argument("--out", type=Path, default=ROOT / "bases" / "tiny", help="the base's folder")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "pretrain", help="where progress is saved")
    parser.add_argument("--minutes", type=float, default=35.0, help="time for each stage (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="length of each stage in steps instead: the same result every time")
    parser.add_argument("--seed", type=int, default=7, help="of weights and data (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, … (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="images a step of the LLaVA (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="continue what --work holds")
    parser.add_argument("--smoke", action="store_true", help=f"{SMOKE_STEPS} small steps a stage, to see that it runs")
    parser.add_argument("--note", default="", help="what the model card should say of the circumstances")
    parser.add_argument("--size", type=int, default=480, help="evaluation: questions a task, images a style")
    return parser


def _record(out: Path, stage: Stage, seed: int, note: str) -> None:
    """Adds to training.json how a stage was made."""
    path = out / "training.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known[stage.name] = {
        "command": " ".join([_launcher(), "train/pretrain.py", *sys.argv[1:]]),
        "seed": seed,
        "steps": stage.step,
        "minutes": round(stage.seconds / 60, 1),
        "hardware": _hardware(),
        "torch": torch.__version__,
        "note": note,
    }
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def _launcher() -> str:
    return "python" if ranks.world() == 1 else f"torchrun --nproc_per_node {ranks.world()}"


def _hardware() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    models = [
        line.split(":", 1)[1].strip()
        for line in (Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else [])
        if line.startswith("model name")
    ]
    threads = f"{ranks.world()} process(es) of {torch.get_num_threads()} thread(s)"
    return f"{models[0] if models else platform.machine()}, {threads}"


def _train(options: argparse.Namespace) -> None:
    budget = Budget(minutes=options.minutes, steps=SMOKE_STEPS if options.smoke else options.steps)
    device = torch_device(options.device)
    if options.stage in ("clip", "all"):
        whole = Sizes(8, 8) if options.smoke else Sizes()
        sizes = Sizes(whole.singles // ranks.world(), whole.scenes // ranks.world())
        clip, stage = train_clip(budget, options.seed, options.work, device, sizes, resume=options.resume)
        if ranks.rank() == 0:
            export_clip(clip, options.out / "clip")
            _record(options.out, stage, options.seed, options.note)
        ranks.agree(0)  # the others wait for the export
    if options.stage in ("llava", "all"):
        batch = (4 if options.smoke else options.batch) // ranks.world()
        clip = load_clip(options.out / "clip")
        model, stage = train_llava(clip, budget, options.seed, options.work, device, batch, resume=options.resume)
        if ranks.rank() == 0:
            export_llava(clip.cpu(), model, options.out / "llava")
            _record(options.out, stage, options.seed, options.note)


def _evaluate(out: Path, size: int) -> None:
    results = {"clip": evaluate_clip(out / "clip", size), "llava": evaluate_llava(out / "llava", size)}
    (out / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    write_card(out)
    print((out / "README.md").read_text(encoding="utf-8"))


def main() -> int:
    options = _parser().parse_args()
    logging.disable_progress_bar()
    if options.stage == "llava" and not (options.out / "clip").is_dir():
        print(f"--out: {options.out} holds no clip/; make it first with the stage 'clip'", file=sys.stderr)
        return 2
    if options.stage == "handwriting":
        for accuracy, preprocessing in search(load_clip(options.out / "clip")):
            print(f"{accuracy:.3f}  {preprocessing}", flush=True)
    elif options.stage == "evaluate":
        _evaluate(options.out, options.size)
    else:
        ranks.join()
        _train(options)
        if options.stage == "all" and ranks.rank() == 0:
            _evaluate(options.out, SMOKE_SIZE if options.smoke else options.size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
