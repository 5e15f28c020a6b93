"""How vLLM is started: every flag and variable with its reason."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from serve.engine.site.fedtailor_engine import SENTINEL
from serve.settings import Settings

IDENTITY_TEMPLATE = '{{ messages[0]["content"] }}'  # the gateway renders the artefact's own template
BASE_MODEL = "engine-base"  # never asked for: rows without an adapter would read another's slot (CPU build)
# Our own settings, and vLLM's resolver of adapters by path, which would follow "../".
NOT_INHERITED = ("FEDTAILOR_", "VLLM_LORA_RESOLVER")
SITE = Path(__file__).parent / "site"


@dataclass(frozen=True)
class EnginePlan:
    """What one engine process needs: the exported base, a private folder (mode 0700), the key only we hold, and the
    token by which it tells numbers that are not finite.
    """

    base: Path
    private: Path
    key: str
    sentinel: int

    @property
    def socket(self) -> Path:
        """Unix socket of the engine: there is no port to find, and nobody else can open the folder it is in."""
        return self.private / "engine.sock"


def engine_command(plan: EnginePlan, settings: Settings) -> list[str]:
    """The command line. ``python -m``, since the CPU build's own console script fails on its distribution's name."""
    template = plan.private / "identity.jinja"
    template.write_text(IDENTITY_TEMPLATE)
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(plan.base), "--served-model-name", BASE_MODEL, "--uds", str(plan.socket)),
        *("--dtype", settings.dtype, "--max-num-seqs", str(settings.max_num_seqs)),
        *(() if settings.max_model_len is None else ("--max-model-len", str(settings.max_model_len))),
        *("--generation-config", "vllm"),  # sampling is the request's, never the checkpoint's
        *("--enable-lora", "--max-lora-rank", str(settings.max_lora_rank), "--max-loras", str(settings.max_loras)),
        *("--max-cpu-loras", str(max(settings.max_cpu_loras, settings.max_loras))),
        *("--chat-template", str(template), "--chat-template-content-format", "string"),
        # Only ready-made soft tokens come in: with no image allowed vLLM neither loads nor profiles its vision tower.
        *("--enable-mm-embeds", "--limit-mm-per-prompt", json.dumps({"image": 0})),
        *("--disable-uvicorn-access-log", "--disable-fastapi-docs", "--fingerprint-mode", "none"),
        *(_cuda_arguments(settings) if torch.cuda.is_available() else _cpu_arguments()),
        *settings.engine_args,
    ]


def _cpu_arguments() -> list[str]:
    # "uni": the worker lives in the engine's process, which saves a third of the start on two cores.
    return ["--enforce-eager", "--distributed-executor-backend", "uni"]


def _cpu_variables(settings: Settings) -> dict[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the cores are shared with the gateway
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # what the CPU build asks for before it takes the "uni" executor
        "OMP_NUM_THREADS": str(settings.engine_threads),
    }


def _cuda_arguments(settings: Settings) -> list[str]:
    return ["--gpu-memory-utilization", str(settings.gpu_memory_utilization)]


def engine_environment(plan: EnginePlan, settings: Settings) -> dict[str, str]:
    """The variables: ours first on PYTHONPATH, the key out of the command line's sight, no network, no telemetry."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")])),
        "VLLM_API_KEY": plan.key,
        SENTINEL: str(plan.sentinel),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        **({} if torch.cuda.is_available() else _cpu_variables(settings)),
        "VLLM_HOST_IP": "127.0.0.1",  # it has no other (own_network.py), and would look for one outside
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
