"""``python -m serve [run] …`` starts the gateway; ``python -m serve keys add|list|remove`` looks after its keys."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import CliApp

from adapters_store.paths import default_store


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 1 after one sentence on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["keys"]:
            return _keys(words[1:])
        return _run(words[1:] if words[:1] == ["run"] else words)
    except ValidationError as error:
        first = error.errors()[0]
        option = "-".join(str(part).replace("_", "-") for part in first["loc"])
        print(f"serve: --{option}: {first['msg'].removeprefix('Value error, ')}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"serve: {error}", file=sys.stderr)
    return 1


def _run(words: list[str]) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # bases are folders; nothing is looked up at run time
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # the engine needs the core that waiting threads would spin on
    from serve.settings import Settings

    settings = CliApp.run(Settings, words)
    import uvicorn

    from adapters_store.bases.frozen import clip_weights
    from serve.app import create_app
    from serve.http.connections import MAX_HEADER_BYTES, Pace, protocol_of

    if settings.clip is not None and not Path(settings.clip).is_dir():
        clip_weights(settings.clip, settings.clip_pretrained)  # an unknown name or tag ends here, with a sentence
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("serve").setLevel(logging.INFO)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it warns of kernels that are not needed
    print(f"gateway on http://{settings.host}:{settings.port} (store {settings.store})", flush=True)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        http=protocol_of(Pace(settings.max_connections, settings.header_timeout_s)),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_keep_alive=int(settings.header_timeout_s),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    return 0


def _keys(words: list[str]) -> int:
    from serve.http.auth import Keys

    asked = _keys_parser().parse_args(words)
    keys = Keys(getattr(asked, "store", default_store()))
    if asked.action == "add":
        print(keys.add(asked.client, asked.admin))
    elif asked.action == "remove":
        print(f"removed {keys.remove(asked.digest)[:12]}")
    else:
        for digest, entry in keys.entries().items():
            print(digest[:12], "admin" if entry["admin"] else "     ", " ".join(entry["clients"]))
    return 0


def _keys_parser() -> argparse.ArgumentParser:
    store = argparse.ArgumentParser(add_help=False)  # taken before the action and after it
    store.add_argument("--store", type=Path, default=argparse.SUPPRESS, help="store the keys are for")
    parser = argparse.ArgumentParser(
        prog="python -m serve keys", description="Keys of a store's gateway.", parents=[store]
    )
    actions = parser.add_subparsers(dest="action", required=True)
    add = actions.add_parser("add", help="make a key for these clients and print it, once", parents=[store])
    add.add_argument("client", nargs="*", help="client ids the key opens")
    add.add_argument("--admin", action="store_true", help="opens every client and the administration")
    actions.add_parser("list", help="digests of the keys, and what each opens", parents=[store])
    remove = actions.add_parser("remove", help="take a key away", parents=[store])
    remove.add_argument("digest", help="the beginning of its digest, as listed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
