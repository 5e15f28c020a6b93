"""What stock vLLM lacks to keep tenants apart, as a plug-in of its own kind, loaded by the engine's processes only.

1. A block of the attention cache is zeroed when it is handed out. vLLM can do that, and does so for other models;
   without it a kernel that multiplies a masked position by 0 makes a NaN of one's own of a stale one of somebody's.
2. Logits that are not finite say so: their row becomes certainty of one token that no answer may hold (the image
   placeholder), at which every request stops, with that token as its reason. vLLM itself would go on with token 0.
3. Soft tokens are parsed one at a time: numpy reads a header through ``ast``, whose state is not safe across threads
   in CPython 3.11 ("AST constructor recursion depth mismatch").
"""

import functools
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import torch

SENTINEL = "FEDTAILOR_SENTINEL_TOKEN"  # variable: id of the token that stands for "not finite"


def install() -> None:
    """Called by vLLM in every process of the engine, before the model is made; a second call changes nothing."""
    from vllm.entrypoints.openai.models.serving import OpenAIServingModels
    from vllm.model_executor.layers.logits_processor import LogitsProcessor
    from vllm.multimodal.media.image import ImageEmbeddingMediaIO
    from vllm.v1.kv_cache_interface import KVCacheConfig

    if hasattr(LogitsProcessor.forward, "__wrapped__"):
        return
    if not isinstance(KVCacheConfig.needs_kv_cache_zeroing, property):
        raise RuntimeError("this vLLM does not zero blocks of its attention cache: tenants would not be apart")
    KVCacheConfig.needs_kv_cache_zeroing = property(lambda _: True)
    LogitsProcessor.forward = _telling(LogitsProcessor.forward, int(os.environ[SENTINEL]))
    ImageEmbeddingMediaIO._load_numpy = _one_at_a_time(ImageEmbeddingMediaIO._load_numpy)
    OpenAIServingModels.unload_lora_adapter = _unloading(OpenAIServingModels.unload_lora_adapter)


def tell(logits: torch.Tensor, sentinel: int) -> torch.Tensor:
    """Logits (rows, vocabulary), in place: a row that is not finite is certain of the sentinel, no other can say it.

    −inf is finite here unless a whole row is: vLLM forbids tokens by it. No value leaves the device.
    """
    bad = ~torch.isfinite(logits.amax(-1, keepdim=True))  # NaN is the highest where there is one
    if not logits.is_cpu or bad.any():  # elsewhere to ask would be to wait for the device
        logits.masked_fill_(bad, float("-inf"))
    logits[:, sentinel] = torch.where(bad[:, 0], 0.0, float("-inf")).to(logits.dtype)
    return logits


def _telling(forward: Callable[..., torch.Tensor | None], sentinel: int) -> Callable[..., torch.Tensor | None]:
    @functools.wraps(forward)
    def telling(*args: Any, **kwargs: Any) -> torch.Tensor | None:
        logits = forward(*args, **kwargs)
        return None if logits is None else tell(logits, sentinel)  # None on all ranks but the first

    return telling


def _one_at_a_time(parse: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    lock = threading.Lock()

    @functools.wraps(parse)
    def locked(*args: Any, **kwargs: Any) -> torch.Tensor:
        with lock:
            return parse(*args, **kwargs)

    return locked


def _unloading(unload: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(unload)
    async def unloading(models: Any, request: Any) -> Any:
        known = models.lora_requests.get(request.lora_name)
        answer = await unload(models, request)
        if known is not None and request.lora_name not in models.lora_requests:
            await models.engine_client.remove_lora(known.lora_int_id)
        return answer

    return unloading
