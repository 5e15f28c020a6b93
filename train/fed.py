"""``accelerate launch train/fed.py --config train/configs/X.yaml``: a federation, from rounds to published versions."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "train":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside train/, not in it

from train.errors import INTERRUPTED, ConfigError, RunError  # noqa: E402

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve the other processes of this machine
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a base is a local folder or a cached one, never a download


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say; 0, or another status after a sentence on standard error for each thing that is
    wrong with them: 2, or 130 where the run was interrupted."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        return _main(arguments)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED


def _main(arguments: Sequence[str]) -> int:
    from train.run.command_line import parse  # takes seconds, in which one may change one's mind

    try:
        config, options = parse(arguments)
        for note in options.notes:
            _say(note)
        from train.run.start import start  # what loads torch comes after the arguments are known to be good

        start(config, options)
    except ConfigError as error:
        _say(str(error))
        return 2
    except RunError as error:
        _say(str(error), error.of_one)
        return error.status
    return 0


def _say(sentences: str, of_one: bool = False) -> None:
    """Once, from the first process, what all of them found; from each, with its number, what may be of one alone."""
    rank = os.environ.get("RANK", "0")
    if rank == "0" or of_one:
        where = "" if rank == "0" else f" (process {rank})"
        for sentence in sentences.splitlines():
            print(f"train/fed.py{where}: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
