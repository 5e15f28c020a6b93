"""Imported by every Python process of the engine's tree at its start, since this folder is on their PYTHONPATH only.

vLLM inspects models in a subprocess and spawns its workers; each of them imports torchvision and its like on its own.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))

import adapters_store  # noqa: F401  its import arms the hook
