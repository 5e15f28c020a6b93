"""``python -m tests.kernels`` prints the values of ATEN_CPU_CAPABILITY that this processor can run, plainest first.

PyTorch takes the variable's word: asked for kernels that the processor lacks it does not fall back, it ends with an
illegal instruction. A word that it does not know it warns of and ignores.
"""

import os
from typing import Final

KINDS: Final = ("default", "avx2", "avx512")
"""Of x86-64; other processors have kinds of their own, and ``default``."""


def kinds() -> tuple[str, ...]:
    """What PyTorch chooses by itself here, and all below it."""
    os.environ.pop("ATEN_CPU_CAPABILITY", None)
    import torch  # reads the variable once

    best = torch.backends.cpu.get_cpu_capability().lower()
    return KINDS[: KINDS.index(best) + 1] if best in KINDS else KINDS[:1]


if __name__ == "__main__":
    print(*kinds())
