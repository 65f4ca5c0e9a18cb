"""The script for GPUs: measurements, failures, and the section of the page."""

import json
import sys
import warnings

import pytest
import torch
from benchmarks import gpu, gpu_causes, gpu_page


def test_page_shows_the_measurements_if_any():
    results = json.loads(gpu.OUT.read_text(encoding="utf-8")) if gpu.OUT.exists() else None
    page = gpu.PAGE.read_text(encoding="utf-8")
    assert gpu_page.BEGIN in page
    assert gpu_page.with_section(page, results) == page


def test_table_has_the_figures():
    figures = {
        "tests": {"passed": True},
        "profile": {"W2 25": {"longest": [["a kernel", 1, 0.5]]}},
        "W2 cohort 25 plain": {"error": "no room"},
        "W2 cohort 25 cuda_graph": {"client_updates_per_s": 1234.5, "round_s_median": 0.1},
        "W2 cohort 25 jax": {"client_updates_per_s": 9.0, "round_s_median": 3.0},
    }
    text = gpu_page.section({"machine": {"device": "a GPU", "torch": "9.9"}, "figures": figures})
    assert "| workload | cohort | plain | cuda_graph | jax |" in text
    assert "| W2 | 25 | - | 1,234 | 9 |" in text
    assert "- tests: passed True" in text
    assert "a kernel" not in text


def test_all_workloads_peers_and_processes_are_measured():
    names = [each.name for each in gpu.measurements("cuda", quick=False, num_devices=2)]
    assert {
        "tests",
        *gpu.WORKLOADS,
        "cifar10_iid",
        "lockstep",
        "planned_ahead",
        "synchronizations",
        "W4 cohort 1000 jax",
        "two processes",
    } < set(names)
    assert "two processes" not in {each.name for each in gpu.measurements("cuda", quick=False, num_devices=1)}


@pytest.fixture
def _types_of_products():
    """Restores whether convolutions and products may use TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("_types_of_products")
def test_all_ways_and_cohorts_are_timed_and_a_failure_leaves_its_error(monkeypatch):
    timed = gpu._timed

    def failing(federation, data, way, device):
        if way == "bf16":
            raise RuntimeError("no kernel")
        return timed(federation, data, way, device)

    monkeypatch.setattr(gpu, "_timed", failing)
    monkeypatch.setenv("TURNOUT_BACKEND", "auto")
    monkeypatch.setattr(gpu, "COHORTS", (3, 4))
    figures = gpu.workload("W2", "cpu", quick=False)
    both = {f"W2 cohort {cohort} {way}" for cohort in (3, 4) for way in ("cuda_graph", "plain")}
    assert figures.keys() == both | {f"W2 cohort 4 {way}" for way in gpu.WAYS}
    assert figures.pop("W2 cohort 4 bf16") == {"error": "RuntimeError: no kernel"}
    assert all(each["client_updates_per_s"] > 0 for each in figures.values())


@pytest.mark.parametrize(
    ("code", "figures"),
    [
        ("print('noise'); print('{\"a\": 1}')", {"a": 1}),
        ("raise ValueError('no kernel')", {"error": "ValueError: no kernel"}),
        ("raise SystemExit(3)", {"error": "exit code 3"}),
        ("import time; time.sleep(60)", {"error": "not done after 0.5 s"}),
    ],
)
def test_failed_measurement_has_its_reason(code, figures):
    assert (
        gpu.made(gpu.Measurement("x", (sys.executable, "-S", "-c", code)), limit=0.5 if "sleep" in code else 20)
        == figures
    )


@pytest.mark.parametrize("name", gpu.CALLS)
def test_calls_name_measurements_in_the_order_of_their_importance(name):
    every = list(gpu.measurements("cuda", quick=False, num_devices=1))
    seconds, limits = gpu.selected(every, name, limit=75.0)
    assert [each.name for each in limits] == list(gpu.CALLS[name][1])
    assert max(limits.values()) == 75.0
    assert seconds == gpu.CALLS[name][0]
    assert gpu.selected(every, None, limit=75.0) == (float("inf"), dict.fromkeys(every, 75.0))


def test_call_ends_in_time(monkeypatch, tmp_path):
    def made(each, limit):
        limits[each.name] = limit
        clock[0] += 400.0
        return {"a": 1}

    clock, limits, out = [0.0], {}, tmp_path / "gpu.json"
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(gpu, "made", made)
    gpu.main(["--device", "cpu", "--quick", "--call", "causes", "--out", str(out)])
    first, second = list(gpu.CALLS["causes"][1])[:2]
    assert limits == {first: 30.0, second: 60.0}
    figures = json.loads(out.read_text(encoding="utf-8"))["figures"]
    assert figures[second] == {"a": 1}
    assert figures["profile"] == {"error": "no time was left"}


def test_causes_are_measured_on_a_cpu_at_small_sizes():
    plans = gpu_causes.plan("cpu", quick=True)
    assert plans.pop("equal") is True
    cells = gpu_causes.cell("cpu", quick=True)
    assert cells.pop("difference") == 0
    figures = plans | cells | gpu_causes.constants("cpu", quick=True)
    assert all(microseconds > 0 for microseconds in figures.values())
    (of_rounds,) = gpu_causes.profile("cpu", quick=True).values()
    assert len(of_rounds["longest"]) == 10
    assert of_rounds["kernels"] > 10
    assert min(of_rounds["kernels_ms"], of_rounds["round_ms"]) > 0


@pytest.mark.parametrize("name", ["cifar10_iid", "rounds", "synchronizations"])
def test_measurements_run_on_a_cpu_at_small_sizes(name, capsys):
    gpu.main(["--device", "cpu", "--quick", "--only", name])
    figures = json.loads(capsys.readouterr().out)
    if name == "synchronizations":
        assert figures == dict.fromkeys(gpu.WORKLOADS)  # of each; on a processor nothing waits
    else:
        assert figures.get("seconds", figures.get("round_s_median")) > 0


def test_synchronizations_of_a_round_are_counted(monkeypatch):
    class Waiting:
        """A round that waits twice, and warns of something else."""

        def round(self):
            assert mode == ["warn"]
            for text in (
                "called a synchronizing CUDA operation",
                "something else",
                "called a synchronizing CUDA operation",
            ):
                warnings.warn(text, UserWarning, stacklevel=1)

    mode = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda value: mode.__setitem__(slice(None), [value]))
    assert gpu._waits(Waiting()) == 2
    assert mode == ["default"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_missing_gpu_explains_how_to_test_the_script(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--device", "cuda"])
    assert "write --device cpu --quick" in capsys.readouterr().err
