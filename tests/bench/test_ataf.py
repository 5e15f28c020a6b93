"""The figures of ATAF's cost are of real merges, here tiny ones."""

from pathlib import Path

from bench.ataf import LINEARS, lora, matrix, write_loras


def test_both_measurements_run(tmp_path: Path) -> None:
    assert write_loras(tmp_path, layers=1, width=32) == {"modules": len(LINEARS), "rank": 16}
    for measured in (lora(1, tmp_path), matrix(1, 24, 32)):
        assert measured["seconds"] >= 0
        assert measured["peak_mib"] >= measured["peak_mib_before"] > 0
    assert (tmp_path / "merged" / "adapter_model.safetensors").is_file()
