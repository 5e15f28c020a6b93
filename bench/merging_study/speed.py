"""What SAP costs the server on a CLIP of ViT-B/16's size: gradients on the anchors for every client, and the merge."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from bench.prompt_study.machine import MIB, peak_memory_mib
from bench.prompt_study.sizes import random_weights
from train.methods.contract import ClientInfo, ServerContext, Update
from train.methods.sap import SAP, SAPOptions
from train.models.clip import ResidentClip

CLIENTS: Final = 4
ARCHITECTURE: Final = "ViT-B-16"


def measure(threads: int) -> dict[str, Any]:
    """Seconds of one merge of random LoRAs over random weights, whose size is what counts; and the peak of memory."""
    torch.set_num_threads(threads)
    with TemporaryDirectory() as folder:
        weights = random_weights(ARCHITECTURE, 0, Path(folder))
        model = ResidentClip(ARCHITECTURE, ARCHITECTURE, pretrained=str(weights))
    method = SAP(SAPOptions())
    clients = [ClientInfo(f"client-{k}", 1, ("star", "ring")) for k in range(CLIENTS)]
    start = method.initial(model, clients, 0)
    updates = [
        Update(client.id, 1, {name: t + 0.01 * torch.randn(t.shape) for name, t in start.items()}) for client in clients
    ]
    before, began = peak_memory_mib(), time.monotonic()
    merged = method.combine(start, updates, ServerContext(model, clients, 0, 1, 0))
    return {
        "architecture": ARCHITECTURE,
        "clients": CLIENTS,
        "anchors": method.options.anchors.count,
        "threads": threads,
        "seconds": round(time.monotonic() - began, 1),
        "peak_mib": round(peak_memory_mib()),
        "peak_mib_before": round(before),
        "merged_mib": round(sum(t.numel() * t.element_size() for t in merged.values()) / MIB, 1),
    }
