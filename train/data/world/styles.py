"""The visual styles: pure functions from objects' distance fields and colours to pictures.

The first three are public, the rest are held out from pretraining. Letters: B scenes, K objects, S = 64 pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from train.data.world.vocabulary import IMAGE_SIZE as S


@dataclass(frozen=True)
class Layers:
    """What is painted, back to front."""

    distance: Tensor
    """(B, K, S, S) signed distance to the object's edge, pixels, positive inside."""
    rgb: Tensor
    """(B, K, 3) in 0–1."""

    def __len__(self) -> int:
        return len(self.rgb)


@dataclass(frozen=True)
class Draw:
    """Random numbers of one generator, on its device."""

    generator: torch.Generator

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self.generator, device=self.generator.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.generator.device)

    def smooth(self, batch: int, channels: int, cells: int) -> Tensor:
        """(B, channels, S, S) smooth noise in about −1…1 that varies `cells` times across the picture."""
        coarse = self.uniform(-1, 1, batch, channels, cells, cells)
        return F.interpolate(coarse, (S, S), mode="bicubic", align_corners=True)

    def grid(self, batch: int, period: tuple[float, float]) -> Tensor:
        """(B, 1, S, S) stripes in −1…1 at a random angle and phase; period: shortest and longest, pixels."""
        angle = self.uniform(0, torch.pi, batch, 1, 1, 1)
        phase = self.uniform(0, 2 * torch.pi, batch, 1, 1, 1)
        frequency = 2 * torch.pi / self.uniform(*period, batch, 1, 1, 1)
        y, x = _axes(self.generator.device)
        return torch.sin(frequency * (x * angle.cos() + y * angle.sin()) + phase)


def _axes(device: torch.device) -> tuple[Tensor, Tensor]:
    """y (S, 1) and x (1, S), pixels."""
    line = torch.arange(S, dtype=torch.float, device=device)
    return line[:, None], line[None, :]


def _over(picture: Tensor, alpha: Tensor, paint: Tensor) -> Tensor:
    """The picture (B, 3, S, S) with paint laid over it where alpha (B, S, S) says."""
    return torch.lerp(picture, paint.expand_as(picture), alpha[:, None])


def _cover(distance: Tensor) -> Tensor:
    """How much of each pixel an object covers, 0–1."""
    return (distance + 0.5).clamp(0, 1)


def _line(distance: Tensor, width: float) -> Tensor:
    """How much of each pixel a line of this width (pixels) along the object's edge covers, 0–1."""
    return (width / 2 + 0.5 - distance.abs()).clamp(0, 1)


def _grey(batch: int, draw: Draw, low: float = 0.03, high: float = 0.97) -> Tensor:
    """(B, 3, 1, 1) nearly colourless backgrounds."""
    return draw.uniform(low, high, batch, 1, 1, 1) + draw.uniform(-0.04, 0.04, batch, 3, 1, 1)


def _objects(layers: Layers) -> list[tuple[Tensor, Tensor]]:
    """Distance (B, S, S) and colour (B, 3, 1, 1) of every object, back to front."""
    return [(layers.distance[:, k], layers.rgb[:, k, :, None, None]) for k in range(layers.rgb.shape[1])]


def _blur(picture: Tensor, sigma: float) -> Tensor:
    kernel = torch.exp(-0.5 * (torch.arange(-2, 3, device=picture.device) / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(3, 1, 1, 5)
    padded = F.pad(picture, (2, 2, 2, 2), mode="reflect")
    return F.conv2d(F.conv2d(padded, kernel, groups=3), kernel.transpose(2, 3), groups=3)


def _plain(layers: Layers, background: Tensor) -> Tensor:
    picture = background.expand(-1, 3, S, S)
    for distance, rgb in _objects(layers):
        picture = _over(picture, _cover(distance), rgb)
    return picture


def flat(layers: Layers, draw: Draw) -> Tensor:
    """One colour each, on one grey."""
    return _plain(layers, _grey(len(layers), draw))


def photo(layers: Layers, draw: Draw) -> Tensor:
    """Uneven light, soft shadows, a little blur and sensor noise."""
    n = len(layers)
    picture = _grey(n, draw) + 0.12 * draw.smooth(n, 1, 3) + 0.05 * draw.smooth(n, 3, 8)
    y, x = _axes(picture.device)
    slope = draw.uniform(-0.3, 0.3, n, 2, 1, 1)
    light = 1 + (slope[:, :1] * (x - S / 2) + slope[:, 1:] * (y - S / 2)) / S
    for distance, rgb in _objects(layers):
        shadow = (_cover(distance.roll((2, 2), (1, 2))) * 0.35 * (distance > -90)).clamp(0, 1)
        picture = _over(picture, shadow, torch.zeros_like(rgb))
        picture = _over(picture, _cover(distance), rgb * light * (1 + 0.08 * draw.smooth(n, 1, 6)))
    return _blur(picture, 0.6) + 0.03 * draw.normal(n, 3, S, S)


def texture(layers: Layers, draw: Draw) -> Tensor:
    """Striped or mottled greys behind objects with a pattern of their own."""
    n = len(layers)
    mottled = draw.smooth(n, 1, 12)
    pattern = torch.where(draw.uniform(0, 1, n, 1, 1, 1) < 0.5, draw.grid(n, (5, 16)).sign(), mottled)
    picture = _grey(n, draw, 0.15, 0.85) + draw.uniform(0.05, 0.14, n, 1, 1, 1) * pattern
    for distance, rgb in _objects(layers):
        strength = draw.uniform(0.05, 0.2, n, 1, 1, 1)
        picture = _over(picture, _cover(distance), rgb * (1 - strength * (1 + draw.grid(n, (4, 10)))))
    return picture


def sketch(layers: Layers, draw: Draw) -> Tensor:
    """Coloured pencil outlines on white paper, drawn with a shaking hand."""
    n = len(layers)
    grain = draw.uniform(0, 1, n, 1, S, S)
    picture = 0.96 - 0.05 * grain.expand(-1, 3, -1, -1)
    for distance, rgb in _objects(layers):
        shaken = distance + 1.1 * draw.smooth(n, 1, 10)[:, 0]
        picture = _over(picture, 0.15 * _cover(distance), rgb)
        picture = _over(picture, (_line(shaken, 1.3) * (0.65 + 0.35 * grain[:, 0])), rgb * 0.9)
    return picture


def cartoon(layers: Layers, draw: Draw) -> Tensor:
    """Thick black outlines and two-tone fills on a bright, dotted background."""
    n = len(layers)
    y, x = _axes(layers.rgb.device)
    dots = (torch.sin(x * 1.05) * torch.sin(y * 1.05) > 0.45).float()
    picture = draw.uniform(0.35, 1.0, n, 3, 1, 1) * (1 - 0.18 * dots)
    for distance, rgb in _objects(layers):
        picture = _over(picture, _cover(distance + 2.4), torch.zeros_like(rgb))
        tone = torch.where((x + y) % S < S / 2, 1.0, 0.78)
        picture = _over(picture, _cover(distance - 0.6), rgb * tone)
    return picture


def paint(layers: Layers, draw: Draw) -> Tensor:
    """Smeared brush strokes, colours mixed on a colourful canvas."""
    n = len(layers)
    picture = 0.55 + 0.3 * draw.smooth(n, 3, 4)
    for distance, rgb in _objects(layers):
        smeared = distance + 1.2 * draw.smooth(n, 1, 14)[:, 0]
        picture = _over(picture, 0.85 * _cover(smeared), rgb + 0.16 * draw.smooth(n, 3, 9))
    y, x = _axes(picture.device)
    flow = 0.035 * draw.smooth(n, 2, 7).permute(0, 2, 3, 1)
    base = torch.stack([x.expand(S, S), y.expand(S, S)], -1) * (2 / (S - 1)) - 1
    picture = F.grid_sample(picture, base + flow, padding_mode="border", align_corners=True)
    return picture * (1 + 0.08 * draw.grid(n, (2.5, 4)))


def pixel(layers: Layers, draw: Draw) -> Tensor:
    """Coarse pixels of an old game, few tones."""
    coarse = F.avg_pool2d(_plain(layers, draw.uniform(0.1, 0.6, len(layers), 3, 1, 1)), 4)
    return F.interpolate((coarse * 4).round() / 4, scale_factor=4, mode="nearest")


def stipple(layers: Layers, draw: Draw) -> Tensor:
    """Ink dots: dense and coloured inside, sparse and grey outside."""
    n = len(layers)
    picture = 0.97 - 0.4 * (draw.uniform(0, 1, n, 1, S, S) < 0.12).float().expand(-1, 3, -1, -1)
    for distance, rgb in _objects(layers):
        dots = F.max_pool2d((draw.uniform(0, 1, n, 1, S, S) < 0.16).float(), 2, 1, 1)[:, 0, :S, :S]
        picture = _over(picture, _cover(distance) * dots, rgb)
    return picture


def hatch(layers: Layers, draw: Draw) -> Tensor:
    """Cross-hatching in coloured ink on cream paper."""
    n = len(layers)
    picture = torch.tensor([0.98, 0.94, 0.84], device=layers.rgb.device)[:, None, None] - 0.1 * (
        draw.grid(n, (3.5, 5)) > 0.8
    ).float().expand(n, 3, S, S)
    for distance, rgb in _objects(layers):
        strokes = (draw.grid(n, (3, 4)) > 0.35).float()[:, 0]
        picture = _over(picture, _cover(distance + 0.8 * draw.smooth(n, 1, 16)[:, 0]) * strokes, rgb)
    return picture


def night(layers: Layers, draw: Draw) -> Tensor:
    """Hardly any light, most of it blue, and a noisy sensor."""
    n = len(layers)
    dim = _plain(layers, _grey(n, draw, 0.2, 0.6)) * draw.uniform(0.22, 0.4, n, 1, 1, 1)
    tint = torch.tensor([0.75, 0.9, 1.25], device=dim.device)[:, None, None]
    return dim * tint + 0.02 + 0.03 * draw.normal(n, 3, S, S)


def inverted(layers: Layers, draw: Draw) -> Tensor:
    """A photographic negative."""
    return 1 - photo(layers, draw)


PAINTERS: dict[str, Callable[[Layers, Draw], Tensor]] = {
    "flat": flat,
    "photo": photo,
    "texture": texture,
    "sketch": sketch,
    "cartoon": cartoon,
    "paint": paint,
    "pixel": pixel,
    "stipple": stipple,
    "hatch": hatch,
    "night": night,
    "inverted": inverted,
}
