"""`make gpu` where there is no GPU: what is measured again, what is kept, how results become a page; the models train and are traced."""

import json
import re
import sys

import pytest
from patience import patient

sys.path.insert(0, "bench")
gpu = pytest.importorskip("gpu")
NAMES = ["NVIDIA H200", "NVIDIA H200"]


def test_without_a_gpu_it_says_so_and_measures_nothing(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "gpu_names", list)
    assert gpu.main([]) == 3
    assert "no GPU" in capsys.readouterr().err


def test_an_unknown_piece_is_refused(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["memry"])
    assert "there is no piece memry" in capsys.readouterr().err


def test_a_piece_that_was_measured_is_not_measured_again_unless_code_or_gpu_changed(tmp_path, monkeypatch):
    piece = next(iter(gpu.PIECES))
    kept = {"piece": piece, "of": gpu.of_what(NAMES), "error": None}
    (tmp_path / "a.json").write_text(json.dumps(kept))
    assert piece not in gpu.chosen([], NAMES, tmp_path)
    assert piece in gpu.chosen([], ["NVIDIA L4"], tmp_path) and gpu.chosen([piece], NAMES, tmp_path) == [piece]
    (tmp_path / "a.json").write_text(json.dumps({**kept, "error": "not done"}))
    assert gpu.chosen([], NAMES, tmp_path) == list(gpu.PIECES)


@pytest.mark.slow
@pytest.mark.process
def test_a_piece_that_fails_or_takes_too_long_is_kept_with_its_reason(tmp_path, monkeypatch):
    # There is no GPU here, so that this piece fails by itself.
    assert not gpu.measure("nccl", NAMES, tmp_path, seconds=patient(60))
    assert not gpu.measure("telemetry", NAMES, tmp_path, seconds=0.1)
    late, failed = sorted((one["error"] for one in gpu.results(tmp_path)), key=len)
    assert late == "not done after 0.1 s" and "ended with" in failed


def test_results_become_a_page_with_a_row_for_each_model():
    row = {
        "model": "wide",
        "measured": {"peak_bytes": 100 << 20, "step_ms": 5.0},
        "predicted": {"allocated_bytes": 110 << 20, "step_ms": 4.0, "step_ms_low": 3.0, "step_ms_high": 6.0},
    }
    common = {"of": gpu.of_what(NAMES), "at": "2026-11-23", "seconds": 3.0}
    entry = {"profiling_name": "nccl:all_reduce", "collective_seq_id": 5, "state": "scheduled"}
    asked = {
        "situation": "kernel_before",
        "timing": "1",
        "answers": {"dump_nccl_trace_json": {"entries": [entry]}, "fr_trace_json": {}},
        "seconds": {"dump_nccl_trace_json": 0.0007},
        "ras": {"STATUS": {"json": "refused"}},
    }
    recorders = {"answers": [asked], "rounds": [{"without": 20.0, "timed": 25.0}], "median_ratio": 1.25}
    text = gpu.page(
        [
            {"piece": "recorders", "found": recorders, "error": None, **common},
            {"piece": "memory", "found": {"models": [row]}, "error": None, **common},
            {"piece": "nccl", "found": None, "error": "a\nno NCCL", **common},
        ]
    )
    assert "| wide | 100 | 110 | +10% | 5.00 | 4.00 (3.00..6.00) | yes |" in text
    assert "| kernel_before | on | nccl:all_reduce 5, scheduled | 0 | 0.7 | does not answer |" in text
    assert "20.0 and 25.0 µs: the median of the ratios is 1.25" in text
    assert "Failed: no NCCL" in text and "2 x NVIDIA H200" in text
    assert "Nothing was measured" in gpu.page([])


def test_the_page_is_made_of_all_results_and_names_no_place_of_the_machine_that_made_them(repository):
    found = gpu.results(gpu.RESULTS)
    text = gpu.page(found)
    assert text == (repository / "docs" / "gpu.md").read_text()
    assert text.count("\n## ") == len(found) and "/tmp/" not in text and "{'" not in text
    inside = f"File {repository}/tests/a.py at /tmp/paceline-gpu-x1_z/script.py:12"
    assert gpu.without_places(inside) == "File tests/a.py at script.py:12"
    absolute = re.compile(r"(?<![\w.])/[\w./-]+\.py")
    assert not any(absolute.search(file.read_text()) for file in gpu.RESULTS.glob("*.json"))


@pytest.mark.slow
@pytest.mark.process
def test_the_models_are_twelve_and_one_of_them_trains_and_is_predicted():
    gpu_train = pytest.importorskip("gpu_train")
    pieces = pytest.importorskip("gpu_pieces")
    assert sorted(gpu_train.MODELS) == sorted(pieces.MODELS) and len(pieces.MODELS) == 12
    assert gpu_train.train("recurrent", "cpu", 1)["step_ms"] > 0
    predicted = pieces._planned("recurrent", "H200")
    # Parameters, gradients and two states of AdamW in fp32: words in and out, and four gates of each of two layers.
    assert predicted["allocated_bytes"] > 4 * 4 * (2 * 10_000 * 650 + 2 * 4 * 650 * 2 * 650)
