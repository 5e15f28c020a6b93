"""Runs the Dockerfile's steps as written in a bare Debian root, then its command until the engine is ready.

python -m tests.docker.run_steps --target cpu --root /tmp/image   (as root; debootstrap makes the Debian root)

No container engine is needed. ``--seed`` and ``--bind`` bring in what a machine's package installation needs of it
(its certificates, its pip configuration, a folder of wheels); they change nothing of the steps.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from tests.docker.dockerfile import Instruction, assignments, chain, context, parse

PROJECT = Path(__file__).resolve().parents[2]
READY_WITHIN_S = 300.0


class Root:
    """A Debian root that instructions are applied to, one after the other."""

    def __init__(self, path: Path, passed: list[str], seeds: list[Path]) -> None:
        self.path = path
        self.seeds = seeds
        self.env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.passed = {name: os.environ[name] for name in passed}
        self.user, self.folder = "root", "/"
        self.command: list[str] = []
        self.health: list[str] = []

    def apply(self, instruction: Instruction) -> None:
        """Does what the instruction says; SystemExit where a RUN fails."""
        match instruction.name:
            case "RUN":
                self.seed()
                if code := subprocess.run(**self.process(instruction.command)).returncode:
                    raise SystemExit(f"the step ended with status {code}: RUN {instruction.text}")
            case "ENV":
                self.env |= assignments(instruction.text)
            case "WORKDIR":
                self.folder = instruction.text
                self.inside(self.folder).mkdir(parents=True, exist_ok=True)
            case "USER":
                self.user = instruction.text
                self.env["HOME"] = f"/home/{self.user}"
            case "COPY":
                self.copy(instruction.text.split())
            case "CMD":
                self.command = instruction.command
            case "HEALTHCHECK":
                self.health = Instruction("CMD", instruction.text.partition("CMD ")[2]).command
            case "VOLUME" | "EXPOSE":
                pass
            case unknown:
                raise SystemExit(f"this script does not know the instruction {unknown}")

    def inside(self, path: str) -> Path:
        """Where an absolute path of the image lies on this machine."""
        return self.path / path.lstrip("/")

    def process(self, command: list[str]) -> dict[str, object]:
        """The arguments that let ``subprocess`` run a command inside, as the user, in the folder."""
        move = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.folder]
        args = [shutil.which("chroot"), f"--userspec={self.user}", "--groups=", str(self.path), *move, *command]
        return {"args": args, "env": self.env | self.passed, "start_new_session": True}

    def seed(self) -> None:
        """Brings in this machine's files; before every step, since a step may write its own over them."""
        for file in self.seeds:
            self.inside(str(file)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.inside(str(file)))

    def copy(self, words: list[str]) -> None:
        """COPY of files and folders of the build context."""
        *sources, target = words
        destination = self.inside(str(Path(self.folder) / target))
        sent = list(context(PROJECT, (PROJECT / ".dockerignore").read_text()))
        for source in sources:
            found = [path for path in sent if source == "." or path.as_posix().startswith((source + "/", source))]
            if not found:
                raise SystemExit(f"COPY {source}: the build context has no such file")
            for path in found:
                is_file = (PROJECT / source).is_file()
                to = destination / (path.name if is_file else path if source == "." else path.relative_to(source))
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(PROJECT / path, to)


def run_service(root: Root) -> tuple[float, float]:
    """Runs the image's command: seconds until its health check passed, and until the engine was ready."""
    started, healthy = time.monotonic(), None
    with subprocess.Popen(**root.process(root.command)) as service:  # type: ignore[call-overload]
        try:
            while time.monotonic() - started < READY_WITHIN_S:
                if service.poll() is not None:
                    raise SystemExit(f"the command ended with status {service.returncode}")
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                if healthy is None and subprocess.run(**root.process(root.health) | quiet).returncode == 0:
                    healthy = time.monotonic() - started
                if healthy is not None and _answers("http://127.0.0.1:8000/readyz"):
                    return healthy, time.monotonic() - started
                time.sleep(1)
            late = "the health check did not pass" if healthy is None else "the engine was not ready"
            raise SystemExit(f"{late} within {READY_WITHIN_S:.0f} s")
        finally:
            os.killpg(service.pid, signal.SIGTERM)
            service.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def main() -> int:
    """Applies every instruction of the target, says how long each took, and starts what was built."""
    options = argparse.ArgumentParser(prog="python -m tests.docker.run_steps", description=__doc__)
    options.add_argument("--root", type=Path, required=True, help="made with debootstrap where it does not exist")
    options.add_argument("--target", default="cpu")
    options.add_argument("--seed", type=Path, action="append", default=[], help="file to copy to the same path inside")
    options.add_argument(
        "--bind", type=Path, action="append", default=[], help="folder to show at the same path inside"
    )
    options.add_argument("--pass-env", action="append", default=[], metavar="NAME", help="variable the steps may see")
    given = options.parse_args()
    if not given.root.exists():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", given.root], check=True)
    root = Root(given.root.resolve(), given.pass_env, [Path("/etc/resolv.conf"), *given.seed])
    with ExitStack() as mounts:
        for path, *how in [
            ("/proc", "-t", "proc", "proc"),
            ("/sys", "-t", "sysfs", "-o", "ro", "sysfs"),  # vLLM reads which cores there are
            ("/dev/shm", "-t", "tmpfs", "tmpfs"),
            *((str(path), "--bind", "-o", "ro", str(path)) for path in given.bind),
        ]:
            point = root.inside(path)
            point.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", *how, point], check=True)
            mounts.callback(subprocess.run, ["umount", "--lazy", point], check=True)
        for instruction in chain(parse((PROJECT / "Dockerfile").read_text()), given.target):
            started = time.monotonic()
            root.apply(instruction)
            print(f"{time.monotonic() - started:7.1f} s  {instruction.name} {instruction.text}", flush=True)
        healthy, ready = run_service(root)
        print(
            f"{root.command} as {root.user}: healthy after {healthy:.1f} s, engine ready after {ready:.1f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
