"""``accelerate launch train/fed.py --config train/configs/X.yaml``: a federation, from rounds to published versions."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if sys.path and Path(sys.path[0]).resolve() == ROOT / "train":
    sys.path[0] = str(ROOT)  # run as a script: the packages are beside train/, not in it

from train.command_line import parse  # noqa: E402
from train.errors import ConfigError, RunError  # noqa: E402

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve the other processes of this machine
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a base is a local folder or a cached one, never a download


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say; 0, or 2 after one sentence on standard error where they cannot be followed."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        config, options = parse(arguments)
        # what loads torch comes after the arguments are known to be good
        from train.run import start

        start(config, options)
    except (ConfigError, RunError) as error:
        print(f"train/fed.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
