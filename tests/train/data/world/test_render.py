"""Pictures and scenes: boxes fit the objects, objects keep their place, and styles differ."""

import numpy as np
import pytest
import torch

from train.data.world.glyphs import load_glyphs
from train.data.world.render import boxes, render, to_bytes
from train.data.world.scenes import Scenes, pair_weights, sample_scenes, single_objects
from train.data.world.styles import PAINTERS
from train.data.world.vocabulary import CELLS, COLOURS, GLYPHS, SHAPES, STYLES


def scenes(batch: int, seed: int = 0) -> tuple[Scenes, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    return sample_scenes(batch, generator), generator


def test_scenes_hold_one_to_three_different_objects_in_different_columns() -> None:
    drawn, _ = scenes(400)
    assert set(drawn.count.tolist()) == {1, 2, 3}
    for glyph, colour, centre, count in zip(drawn.glyph, drawn.colour, drawn.centre, drawn.count, strict=True):
        own = list(zip(glyph[:count].tolist(), colour[:count].tolist(), strict=True))
        assert len(set(own)) == len(own)
        columns = sorted((centre[:count, 0] // (64 / 3)).int().tolist())
        assert len(set(columns)) == count
    shared = [len(set(g[: int(n)].tolist())) < n for g, n in zip(drawn.glyph, drawn.count, strict=True)]
    assert np.mean(shared) > 0.1  # objects share a shape often enough that colour must be looked at


def test_weights_restrict_what_is_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = sample_scenes(200, generator, pair_weights([2, 3], [0, 5]), (1.0, 0.0, 0.0))
    assert set(drawn.glyph[:, 0].tolist()) == {2, 3}
    assert set(drawn.colour[:, 0].tolist()) == {0, 5}
    assert drawn.count.eq(1).all()


def test_boxes_hold_their_objects() -> None:
    drawn, generator = scenes(100)
    _, distance = render(drawn, torch.zeros(100, dtype=torch.long), generator)
    for b in range(100):
        for k in range(int(drawn.count[b])):
            x0, y0, x1, y1 = boxes(distance)[b, k].tolist()
            inside = torch.nonzero(distance[b, k] > 0)
            assert (inside[:, 1].min(), inside[:, 0].min(), inside[:, 1].max(), inside[:, 0].max()) == (x0, y0, x1, y1)
            x, y = drawn.centre[b, k].tolist()
            assert abs((x0 + x1) / 2 - x) < 5
            assert abs((y0 + y1) / 2 - y) < 5
            assert max(x1 - x0, y1 - y0) < 1.45 * float(drawn.size[b, k])


def test_boxes_of_absent_objects_are_zero() -> None:
    drawn, generator = scenes(50)
    _, distance = render(drawn, torch.zeros(50, dtype=torch.long), generator)
    assert boxes(distance)[drawn.glyph < 0].eq(0).all()


@pytest.mark.parametrize("style", STYLES)
def test_every_style_shows_the_object(style: str) -> None:
    """The object changes the picture where it is much more than elsewhere."""
    pair = torch.arange(len(SHAPES)) * len(COLOURS)
    index = torch.full((len(pair),), STYLES.index(style))
    drawn = single_objects(pair, torch.Generator().manual_seed(1))
    absent = Scenes(**{**vars(drawn), "glyph": torch.full_like(drawn.glyph, -1)})
    seen, distance = render(drawn, index, torch.Generator().manual_seed(2))
    empty, _ = render(absent, index, torch.Generator().manual_seed(2))
    change = (seen - empty).abs().mean(1)
    inside = distance[:, 0] > 0
    far = distance[:, 0] < -9
    assert change[inside].mean() > 3 * change[far].mean()
    assert change[inside].mean() > 0.02


def test_styles_differ_and_are_repeatable() -> None:
    pictures = {}
    for style in STYLES:
        drawn, generator = scenes(8)
        pictures[style] = to_bytes(render(drawn, torch.full((8,), STYLES.index(style)), generator)[0])
        drawn, generator = scenes(8)
        again = to_bytes(render(drawn, torch.full((8,), STYLES.index(style)), generator)[0])
        assert torch.equal(pictures[style], again)
    assert len({p.numpy().tobytes() for p in pictures.values()}) == len(STYLES)
    assert set(PAINTERS) == set(STYLES)


def test_glyph_bank_has_every_glyph_in_many_fonts() -> None:
    bank = load_glyphs()
    assert bank.fonts >= 40
    glyph, font = torch.arange(len(GLYPHS)), torch.full((len(GLYPHS),), bank.fonts - 1)
    chosen = bank.distance[bank.index(glyph, font), 0]
    assert (chosen.flatten(1).amax(1) > 0).all()
    assert chosen.flatten(1).unique(dim=0).shape[0] == len(GLYPHS)
    assert len(CELLS) == 9
