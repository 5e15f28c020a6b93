"""Contact sheets: a client's examples in one picture, each with its question and answer."""

from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from train.data.examples import ClientData, Example
from train.data.readers.refcoco import GRID

COLUMNS: Final = 4
TILE: Final = 192
"""Edge at which an image is shown, pixels."""
CAPTION: Final = 62
"""Height of the text under it, pixels."""
MARGIN: Final = 8


def _wrap(draw: ImageDraw.ImageDraw, text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if draw.textlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _tile(sheet: Image.Image, example: Example, x: int, y: int) -> None:
    """Puts one example at (x, y), its box drawn where the answer is one."""
    picture = Image.fromarray(example.image).resize((TILE, TILE), Image.Resampling.NEAREST)
    sheet.paste(picture, (x, y))
    draw = ImageDraw.Draw(sheet)
    if example.task == "ground":
        scale = TILE / (GRID if example.style == "refcoco" else example.image.shape[1])
        x0, y0, x1, y1 = (int(edge) for edge in example.answer.split()[1:])
        draw.rectangle([x + x0 * scale, y + y0 * scale, x + (x1 + 1) * scale, y + (y1 + 1) * scale], outline="red")
    lines = _wrap(draw, example.question, TILE) + _wrap(draw, f"→ {example.answer}", TILE)
    for i, line in enumerate(lines[:5]):
        draw.text((x, y + TILE + 1 + 12 * i), line.replace("→", ">"), fill="black")


def contact_sheet(client: ClientData, per_split: int = 8) -> Image.Image:
    """The first examples of every split and of what is unseen, a heading above each."""
    splits = {"training": client.train, "validation": client.val, "test": client.test}
    splits |= {f"unseen {kind}": examples for kind, examples in client.unseen.items()}
    rows = -(-per_split // COLUMNS)
    height = len(splits) * (28 + rows * (TILE + CAPTION)) + 28
    sheet = Image.new("RGB", (COLUMNS * (TILE + MARGIN) + MARGIN, height), "white")
    draw = ImageDraw.Draw(sheet)
    heading = ImageFont.load_default(16)
    draw.text((MARGIN, 4), f"{client.id}  ({client.note})", fill="black", font=heading)
    y = 28
    for name, examples in splits.items():
        draw.text((MARGIN, y + 4), f"{name}: {len(examples)} examples", fill="black", font=heading)
        for i, example in enumerate(examples[:per_split]):
            row, column = divmod(i, COLUMNS)
            _tile(sheet, example, MARGIN + column * (TILE + MARGIN), y + 28 + row * (TILE + CAPTION))
        y += 28 + rows * (TILE + CAPTION)
    return sheet


def save_sheet(client: ClientData, path: Path) -> None:
    """Writes the contact sheet as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(client).save(path, "PNG")
