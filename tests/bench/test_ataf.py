"""The figures of ATAF's cost are of real merges, here tiny ones."""

from pathlib import Path

from bench.ataf import LINEARS, lora, matrix, merge_models, write_loras, write_models


def test_both_measurements_run(tmp_path: Path) -> None:
    assert write_loras(tmp_path, layers=1, width=32) == {"modules": len(LINEARS), "rank": 16}
    assert write_models(tmp_path, count=2, width=16)["matrices"] == 2
    for measured in (lora(1, tmp_path), matrix(1, 24, 32), merge_models(1, tmp_path)):
        assert measured["seconds"] >= 0
        assert measured["peak_mib"] >= measured["peak_mib_before"] > 0
    assert (tmp_path / "merged" / "adapter_model.safetensors").is_file()
    assert (tmp_path / "model" / "model.safetensors").is_file()
