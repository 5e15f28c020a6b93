"""The contact sheet shows the client's pictures, and its command refuses with a sentence."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data import ClientData, DataConfig, Example, build
from train.data.sheet import COLUMNS, MARGIN, TILE, contact_sheet

CONFIG = "seed: 3\ndata:\n  clients: 2\n  styles: [night, cartoon]\n  tasks: [ground]\n  train_per_client: 8\n"


def run(tmp_path: Path, config: str, client: str = "client-01") -> subprocess.CompletedProcess[str]:
    (tmp_path / "x.yaml").write_text(config)
    command = [sys.executable, "-m", "train.data", "sheet", "--config", str(tmp_path / "x.yaml")]
    return subprocess.run(
        [*command, "--client", client, "--out", str(tmp_path / "out" / "sheet.png")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )


def test_the_pictures_are_on_the_sheet() -> None:
    config = DataConfig(clients=1, tasks=("caption",), train_per_client=8, val_per_client=4, test_per_client=4)
    client = build(config, 0)[0]
    sheet = np.asarray(contact_sheet(client))
    for i, example in enumerate(client.train[:COLUMNS]):
        x = MARGIN + i * (TILE + MARGIN)
        shown = sheet[56 : 56 + TILE, x : x + TILE]
        assert np.array_equal(shown[1::3, 1::3], example.image)


def test_what_is_unseen_is_on_the_sheet() -> None:
    sizes = {"train_per_client": 4, "val_per_client": 4, "test_per_client": 4}
    plain = DataConfig.model_validate({"clients": 1, "partition": "task"} | sizes)
    held_out = {"unseen_styles": {"caption": "pixel"}, "unseen_tasks": ["vqa"], "unseen_per_client": 4}
    without, client = build(plain, 0)[0], build(DataConfig.model_validate(plain.model_dump() | held_out), 0)[0]
    sheet, shorter = (np.asarray(contact_sheet(one, 4)) for one in (client, without))
    one = (len(shorter) - 28) // 3
    assert len(sheet) == 28 + 5 * one
    for i, examples in enumerate(client.unseen.values(), 3):
        y = 28 + i * one + 28
        assert np.array_equal(sheet[y + 1 : y + TILE : 3, MARGIN + 1 : MARGIN + TILE : 3], examples[0].image)


def test_the_command_writes_a_sheet(tmp_path: Path) -> None:
    done = run(tmp_path, CONFIG + "train: {rounds: 1}\n")
    assert done.returncode == 0, done.stderr
    assert "cartoon: ground" in done.stdout
    assert Image.open(tmp_path / "out" / "sheet.png").width == COLUMNS * (TILE + MARGIN) + MARGIN


@pytest.mark.parametrize(
    ("config", "client", "sentence"),
    [
        (CONFIG, "nobody", "--client: found 'nobody', allowed are client-00, client-01"),
        ("data: {clients: none}\n", "client-00", "data.clients: "),
        ("data: {tasks: [caption], few_shot: 3}\n", "client-00", "few_shot: found 3"),
        ("[]\n", "client-00", "must hold sections such as 'data:', not a list"),
        ("data: {clients: [\n", "client-00", "is not YAML"),
    ],
)
def test_refusals_are_one_sentence(tmp_path: Path, config: str, client: str, sentence: str) -> None:
    done = run(tmp_path, config, client)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_sheet_of_a_wrong_configuration_says_everything(tmp_path: Path) -> None:
    done = run(tmp_path, "data: {tasks: [caption], few_shot: 3, shared: images}\n", "client-00")
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["data.shared", "data.few_shot"]


def test_a_box_on_a_grid_is_drawn_on_the_whole_picture() -> None:
    """RefCOCO's answers count hundredths of the picture, the embedded ones its pixels."""
    grey = np.full((64, 64, 3), 128, dtype=np.uint8)
    for style, answer in (("refcoco", "box 25 50 74 99"), ("night", "box 16 32 47 63")):
        example = Example(grey, "Give the box.", answer, "ground", -1, "one", style)
        sheet = np.asarray(contact_sheet(ClientData("ann", (example,), (), (), (), "")))
        rows, columns = np.nonzero((sheet[56 : 56 + TILE, MARGIN : MARGIN + TILE] == (255, 0, 0)).all(-1))
        assert (rows.min(), columns.min(), columns.max()) == (TILE // 2, TILE // 4, 3 * TILE // 4)
