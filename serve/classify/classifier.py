"""Classification clients: images of all of them encoded together, then each client's own head.

A version is a head over the base's image features, or a LoRA on the vision tower with a head of fixed texts.

Letters: D joint embedding width.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from adapters_store.bases.frozen import clip_base_id
from adapters_store.personal.clip import load_clip
from adapters_store.personal.heads import Head, make_head
from adapters_store.personal.prompt import CLASS_FIELD, prompt_width
from adapters_store.personal.tensor_cache import TensorCache
from adapters_store.pictures.pixels import to_pixels
from adapters_store.pictures.transform import ImageTransform
from serve.classify.class_scores import ClassScores, class_scores
from serve.classify.head_fit import check_head
from serve.classify.vision_versions import Tower, encode, has_tower, read_tower
from serve.classify.zero_shot import ZeroShot
from serve.errors import invalid
from serve.metrics import Metrics
from serve.pictures.batching import Batcher
from serve.pictures.images import Picture
from serve.settings import MIB, Settings
from serve.versions.subjects import Subject


@dataclass(frozen=True)
class Loaded:
    """One version in use."""

    head: Head
    tower: Tower | None = None  # None: the base's own


class Classifier:
    """A frozen dual encoder, and what every version in use adds to it. It is a host like the engine's."""

    max_rank: int | None = None
    capacity: int | None = None
    generation: int | None = 1  # in this process: never gone before the gateway itself

    def __init__(self, base: str, settings: Settings, metrics: Metrics) -> None:
        """``base``: an open_clip folder, or a model of open_clip by name, with ``settings.clip_pretrained``."""
        self.base_id = clip_base_id(base, settings.clip_pretrained)
        self._device = torch.device(settings.encoder_device)
        self._clip = load_clip(base, settings.clip_pretrained, self._device)
        self._loaded: dict[str, Loaded] = {}  # by subject name
        self._zero_shot = ZeroShot(self._clip, settings)
        self._metrics = metrics
        self._batcher = Batcher(self._encode, settings.max_batch, settings.max_wait_ms)
        self._cache = TensorCache(settings.cache_mib * MIB)

    def require_up(self) -> None:
        """Always up."""

    async def load(self, subject: Subject) -> None:
        """Makes the version's head: its text features are computed here, once. ValueError where it is unfit."""
        size, taken = subject.image_transform.size, self._clip.image_transform.size
        if size != taken:  # one such image would spoil a batch that others share
            raise ValueError(f"image_transform.size is {size} where the base takes {taken}")
        if has_tower(subject.folder):
            if CLASS_FIELD not in subject.prompt_template:
                raise ValueError(
                    f"prompt_template {subject.prompt_template!r} has no {CLASS_FIELD}: all classes are one"
                )
            tower = await asyncio.to_thread(read_tower, self._clip, subject.name, subject.folder)
            texts = await self._zero_shot.head(subject.class_names, subject.name, subject.prompt_template)
            self._loaded[subject.name] = Loaded(texts, tower)
        else:
            self._loaded[subject.name] = Loaded(await asyncio.to_thread(self._head, subject))

    async def unload(self, subject: Subject) -> None:
        """Forgets what the version adds."""
        self._loaded.pop(subject.name, None)

    async def sound(self) -> bool:
        """Always: a version's numbers stay its own here."""
        return True

    async def close(self) -> None:
        """Ends the encoders' threads."""
        await self._batcher.close()
        await self._zero_shot.close()

    async def answer(self, subject: Subject, picture: Picture, owner: str) -> ClassScores:
        """What the version says of the picture, over its own classes."""
        loaded = self._loaded[subject.name]
        features = await self._image_features(picture, subject.image_transform, owner, loaded.tower)
        return await asyncio.to_thread(class_scores, loaded.head, subject.class_names, features, self._device)

    def transform(self, subject: Subject, zero_shot: bool) -> ImageTransform:
        """How a picture has to be made that the subject, or the base in its place, is asked about."""
        own = not zero_shot or self._loaded[subject.name].tower is not None
        return subject.image_transform if own else self._clip.image_transform

    async def zero_shot(
        self, class_names: Sequence[str], picture: Picture, owner: str, subject: Subject
    ) -> ClassScores:
        """What is said of the picture over classes that come with it: by the subject's own tower, else by the base.

        400 where a name is too long.
        """
        tower = self._loaded[subject.name].tower
        template = None if tower is None else subject.prompt_template
        try:
            head = await self._zero_shot.head(class_names, owner, template)
        except ValueError as error:
            raise invalid(f"field 'classes': {error}", "classes") from error
        features = await self._image_features(picture, self.transform(subject, zero_shot=True), owner, tower)
        return await asyncio.to_thread(class_scores, head, class_names, features, self._device)

    async def _image_features(
        self, picture: Picture, transform: ImageTransform, owner: str, tower: Tower | None
    ) -> Tensor:
        """(D,)"""
        key = (owner, transform, picture.digest, "" if tower is None else tower.name)
        found = self._cache.get(key)
        if found is None:
            found = await self._batcher((picture.image, transform, tower))
            self._cache.put(key, found)
        return found

    @torch.inference_mode()
    def _encode(self, items: Sequence[tuple[Image.Image, ImageTransform, Tower | None]]) -> list[Tensor]:
        self._metrics.encoded("clip", len(items))
        pixels = torch.stack([to_pixels(image, transform) for image, transform, _ in items])
        return encode(self._clip, pixels.to(self._device), [tower for *_, tower in items])

    @torch.inference_mode()
    def _head(self, subject: Subject) -> Head:
        stored = load_file(subject.folder / "prompt.safetensors")
        check_head(stored, prompt_width(self._clip), self._clip.joint_width, len(subject.class_names))
        tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in stored.items()}
        head = make_head(self._clip, tensors, subject.class_names, subject.prompt_template)
        tried = self._clip.text_features([""])  # of a text, where an image's will be
        if not bool(torch.isfinite(head.logits(tried)).all()):
            raise ValueError("its class scores are not finite")
        return head
