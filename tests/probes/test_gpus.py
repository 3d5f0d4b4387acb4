import pytest

from paceline.probes.gpus import Gpu, GpuReading, count_visible, has_accelerator, read_gpus, visible_gpus

FOUR = tuple(Gpu(index=index, uuid=f"GPU-{index}aaa-{index}", name="H100") for index in range(4))
SLICED = (Gpu(index=0, uuid="GPU-0aaa", mig=True, mig_uuids=("MIG-1a", "MIG-2b")), Gpu(index=1, uuid="GPU-1aaa"))


@pytest.mark.parametrize(
    ("variable", "chosen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("2,0", [2, 0]),
        (" 1 , 3 ", [1, 3]),
        ("1,1", []),
        ("0,9,1", [0]),
        ("0,x,1", [0]),
        ("1abc", [1]),
        ("none", []),
        ("GPU-2aaa-2", [2]),
        ("GPU-2,GPU-0", [2, 0]),
        ("GPU-2aaa,GPU-2", []),
        ("GPU-", []),
        ("GPU-1,7", [1]),
        ("GPU-9,GPU-0", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(variable, chosen):
    assert visible_gpus(FOUR, variable).uuids == tuple(FOUR[index].uuid for index in chosen)
    assert visible_gpus(FOUR, variable).count == len(chosen)


@pytest.mark.parametrize(
    "variable",
    [
        "",
        "-1",
        "0,-1,1",
        "2,0",
        " 1 , 3 ",
        "1,1",
        "0,x,1",
        "1abc",
        "none",
        "+1",
        "GPU-2,GPU-0",
        "GPU-1,7",
        "GPU-a,GPU-a",
    ],
)
def test_entries_are_split_as_torch_splits_them(variable, monkeypatch):
    cuda = pytest.importorskip("torch.cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    theirs = cuda._parse_visible_devices()
    if theirs and isinstance(theirs[0], str):
        theirs = cuda._transform_uuid_to_ordinals(theirs, [gpu.uuid for gpu in FOUR])
    assert list(visible_gpus(FOUR, variable).uuids) == [FOUR[index].uuid for index in theirs]


def test_a_process_sees_one_mig_slice_at_most():
    assert visible_gpus(SLICED, "MIG-1a").uuids == ("MIG-1a",)
    assert visible_gpus(SLICED, "MIG-1a,MIG-2b").count == 1
    assert visible_gpus(SLICED, "MIG-9").count == 0


def test_what_cuda_shows_of_a_sliced_gpu_is_not_guessed():
    assert visible_gpus(SLICED, None).count is None
    assert visible_gpus(SLICED, "0").count is None
    assert "MIG" in visible_gpus(SLICED, None).reason
    assert visible_gpus(SLICED, "1").count == 1


def test_no_nvml_means_unknown_and_says_why():
    absent = GpuReading(gpus=None, reason="NVML: Shared Library Not Found")
    assert count_visible({}, absent) == (None, "NVML: Shared Library Not Found")
    assert absent.devices() is None


def test_a_variable_that_hides_every_gpu_needs_no_nvml():
    absent = GpuReading(gpus=None, reason="no NVML")
    for variable in ("", "-1", "none"):
        count, reason = count_visible({"CUDA_VISIBLE_DEVICES": variable}, absent)
        assert count == 0
        assert variable in reason
    assert count_visible({"CUDA_VISIBLE_DEVICES": "0"}, absent)[0] is None


def test_counting_says_what_leaves_none():
    assert count_visible({}, GpuReading(gpus=FOUR)) == (4, "")
    assert count_visible({"CUDA_VISIBLE_DEVICES": "7"}, GpuReading(gpus=FOUR)) == (
        0,
        "NVML counts 4 GPUs; CUDA_VISIBLE_DEVICES='7' leaves none",
    )


def test_reading_this_machine_gives_gpus_or_a_reason():
    reading = read_gpus()
    assert (reading.gpus is None) == bool(reading.reason)


@pytest.mark.parametrize(
    ("classes", "there"), [(["0x060000", "0x020000"], False), (["0x030200"], True), (["0x120000"], True), ([], None)]
)
def test_an_accelerator_of_any_maker_shows_on_the_bus(tmp_path, classes, there):
    for number, text in enumerate(classes):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "class").write_text(f"{text}\n")
    assert has_accelerator(tmp_path) is there
