"""History: what goes in comes out, interrupted or not; final figures; damaged files."""

import errno
import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.checks import CheckpointError, ConfigurationError
from turnout.record import query
from turnout.record.figures import Reached
from turnout.record.query import History
from turnout.record.schema import CLIENT_COLUMNS, ROUND_COLUMNS, less_is_better
from turnout.record.tables import array_of, is_known, numbers

FILES = ("rounds.parquet", "clients.parquet", "participation.parquet")


def play(history, rounds):
    """Record rounds whose content depends on the round alone; evaluated every 5 rounds, a rarer extra column."""
    for r in rounds:
        values = {"local_loss": 1.0 / r, "bytes_up": 2**40 + r, "num_dropped": r % 2}
        if r % 5 == 0:
            values |= {"test_accuracy": r / 1000, "test_loss": math.nan if r == 20 else 1.0 / r}
        if r % 7 == 0:
            values["cosine"] = np.float32(r)
        history.record(round=r, participants=np.arange(r % 4) * r, **values)


def plain(table):
    """A table as a dictionary in which NaN equals NaN."""
    return {name: [repr(value) for value in table[name].to_pylist()] for name in table.column_names}


def tables(history):
    return [plain(table) for table in (history.rounds, history.clients, history.participation)]


def test_recorded_rounds_are_returned():
    history = History()
    history.record(
        round=3, participants=[5, 2], test_accuracy=torch.tensor(0.5), bytes_up=np.int64(7), extra=np.float32(0.25)
    )
    history.record(round=4, num_participants=9)
    rounds = history.rounds.to_pydict()
    assert list(rounds) == [*ROUND_COLUMNS, "extra"]
    assert (rounds["round"], rounds["num_participants"]) == ([3, 4], [2, 9])
    assert (rounds["test_accuracy"], rounds["bytes_up"], rounds["extra"]) == ([0.5, None], [7, None], [0.25, None])
    assert history.participation.to_pydict() == {"round": [3, 3], "client": [5, 2]}
    assert (len(history), history.last_round) == (2, 4)


def test_an_empty_history_has_empty_tables_and_can_be_saved(tmp_path):
    History().save(tmp_path)
    history = History.load(tmp_path)
    assert history.rounds.column_names == list(ROUND_COLUMNS)
    assert history.clients.column_names == list(CLIENT_COLUMNS)
    assert len(history.rounds) == len(history.clients) == len(history.participation) == 0
    assert math.isnan(history.final("test_accuracy"))
    assert history.summary() == {"rounds": 0}


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 30), st.integers(0, 8))
def test_saved_and_continued_history_equals_uninterrupted(tmp_path_factory, stop, lost):
    """The tables were saved at `stop`, `lost` rounds after the checkpoint from which the run goes on."""
    folder = tmp_path_factory.mktemp("run")
    whole, first = History(), History()
    play(whole, range(1, 31))
    play(first, range(1, stop + 1))
    first.save(folder)
    again = History.load(folder)
    again.rewind(max(0, stop - lost))
    play(again, range(again.last_round + 1, 31))
    assert tables(again) == tables(whole)


def test_rewind_removes_columns_of_later_rounds():
    first, reference = History(), History()
    play(first, range(1, 10))
    first.rewind(6)
    play(reference, range(1, 7))
    assert tables(first) == tables(reference)
    assert "cosine" not in first.rounds.column_names


def test_column_drops_what_was_not_measured_and_keeps_nan():
    history = History()
    play(history, range(1, 31))
    rounds, losses = history.column("test_loss")
    assert rounds.tolist() == [5, 10, 15, 20, 25, 30]
    np.testing.assert_array_equal(losses, [1 / 5, 1 / 10, 1 / 15, math.nan, 1 / 25, 1 / 30])
    assert history.column("bytes_up")[1].dtype == np.int64
    with pytest.raises(ConfigurationError, match="unknown column 'test_acuracy': did you mean 'test_accuracy'"):
        history.column("test_acuracy")


def test_nan_and_null_are_distinct(tmp_path):
    history = History()
    history.record(round=1, test_loss=math.nan)
    history.record(round=2)
    history.set_clients(weight=np.array([math.nan, 1.0]))
    history.save(tmp_path)
    for each in (history, History.load(tmp_path)):
        assert [repr(value) for value in each.rounds["test_loss"].to_pylist()] == ["nan", "None"]
        assert each.clients["weight"].null_count == 0
        assert each.clients["test_loss"].null_count == 2
        assert each.column("test_loss")[0].tolist() == [1]


def test_final_averages_the_last_window():
    history = History()
    for r in range(1, 1001):
        history.record(round=r, **({"test_accuracy": r} if r % 10 == 0 else {}))
    assert history.final("test_accuracy", window=200) == np.arange(810, 1001, 10).mean()
    assert history.final("test_accuracy") == np.arange(910, 1001, 10).mean()
    assert history.final("test_accuracy", window=5) == 1000
    assert history.final("test_accuracy", window=10**6) == np.arange(10, 1001, 10).mean()
    history.record(round=1600)
    assert history.final("test_accuracy") == 1000, "with no evaluation in the window, the last one counts"
    assert math.isnan(history.final("train_loss"))
    with pytest.raises(ConfigurationError, match="window: got 0"):
        history.final("test_accuracy", window=0)


def spending(**columns):
    """Three rounds, the second and third evaluated."""
    history = History()
    for r in range(3):
        accuracy = {} if r == 0 else {"test_accuracy": [0.5, 0.8][r - 1], "test_loss": [1.5, 0.5][r - 1]}
        history.record(round=r + 1, **{name: values[r] for name, values in columns.items()}, **accuracy)
    return history


def test_costs_until_a_target_include_its_round():
    history = spending(
        bytes_up=[1, 2, 4], bytes_down=[10, 20, 40], bytes_measured=[None, 100, None], simulated_seconds=[0.5, 1.0, 2.0]
    )
    assert history.reached("test_accuracy", 0.5) == Reached(2, bytes=133.0, simulated_seconds=1.5)
    assert history.reached("test_accuracy", 0.51) == Reached(3, bytes=177.0, simulated_seconds=3.5)
    assert history.reached("test_accuracy", 0.81) is None
    assert history.reached("test_loss", 1.5) == history.reached("test_accuracy", 0.5), "a loss is met from above"
    assert history.reached("train_accuracy", 0.1) is None
    np.testing.assert_array_equal(history.spent("bytes"), [11, 133, 177])


def test_unrecorded_cost_is_none():
    history = spending(bytes_up=[1, 2, 4])
    assert history.reached("test_accuracy", 0.5) == Reached(2, bytes=3.0, simulated_seconds=None)
    assert history.spent("simulated_seconds") is None
    with pytest.raises(ConfigurationError, match="unknown cost 'bites': did you mean 'bytes'"):
        history.spent("bites")
    with pytest.raises(ConfigurationError, match="unknown column 'test_acuracy': did you mean 'test_accuracy'"):
        history.reached("test_acuracy", 0.5)


def test_diverged_run_never_reaches_a_target():
    history = History()
    history.record(round=1, test_accuracy=math.nan, test_loss=math.nan)
    assert history.reached("test_accuracy", 0.0) is None
    assert history.reached("test_loss", math.inf) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_reached_returns_the_first_round(accuracies, target):
    history = History()
    for r, accuracy in enumerate(accuracies, start=1):
        history.record(round=3 * r, test_accuracy=accuracy, bytes_up=1)
    met = [3 * r for r, accuracy in enumerate(accuracies, start=1) if accuracy >= target]
    reached = history.reached("test_accuracy", target)
    assert reached == (Reached(met[0], bytes=met[0] / 3) if met else None)


def test_less_is_better_for_losses_and_costs():
    falling = ("test_loss", "train_loss", "gradient_norm", "simulated_seconds", "bytes_up")
    assert all(map(less_is_better, falling))
    assert not any(map(less_is_better, ("test_accuracy", "appeal", "num_participants")))


def test_summary_has_final_figures():
    history = History()
    play(history, range(1, 11))
    history.set_clients(test_accuracy=[0.5, math.nan, 1.0])
    summary = history.summary()
    assert summary["bytes_up"] == 10 * 2**40 + 55
    assert summary["num_participants"] == pytest.approx(np.mean([r % 4 for r in range(1, 11)]))
    assert summary["test_accuracy"] == 0.01
    assert summary["fairness"]["of"] == "test_accuracy"
    assert (summary["fairness"]["worst"], summary["fairness"]["missing"]) == (0.5, 1)
    assert "train_accuracy" not in summary
    history.set_clients(test_accuracy=[math.nan], train_accuracy=[0.75])
    assert history.summary()["fairness"]["of"] == "train_accuracy"


def test_set_clients_builds_the_table_of_clients():
    history = History()
    history.set_clients(
        name=("a", "b"), num_examples=torch.tensor([3, 4]), weight=np.array([1.5, math.nan]), bias=[1, 2]
    )
    assert history.clients.column_names == [*CLIENT_COLUMNS, "bias"]
    assert history.clients["client"].to_pylist() == [0, 1]
    assert history.clients["num_examples"].to_pylist() == [3, 4]
    np.testing.assert_array_equal(history.client_column("weight"), [1.5, math.nan])
    np.testing.assert_array_equal(history.client_column("known_rate"), [math.nan, math.nan])
    with pytest.raises(ConfigurationError, match="unknown client column 'name'"):
        history.client_column("name")


def test_table_of_clients_survives_saving(tmp_path):
    history = History()
    history.set_clients(name=["a", "ü"], weight=[1.5, None], participations=[1, 2])
    history.save(tmp_path)
    assert plain(History.load(tmp_path).clients) == plain(history.clients)


def test_invalid_records_are_refused():
    history = History()
    history.record(round=2)
    with pytest.raises(ConfigurationError, match=r"round: got 2, needed a round after .*, 2. .*rewind\(1\)"):
        history.record(round=2)
    with pytest.raises(ConfigurationError, match="round: got 0"):
        history.record(round=0)
    with pytest.raises(ConfigurationError, match=r"history column 'test_loss': got array.*needed one number"):
        history.record(round=3, test_loss=np.zeros(2))
    with pytest.raises(ConfigurationError, match="history column 'note': got 'x', needed one number"):
        history.record(round=3, note="x")
    with pytest.raises(ConfigurationError, match=r"history column 'bytes_up': got 1.5, needed a whole number"):
        history.record(round=3, bytes_up=1.5)
    with pytest.raises(ConfigurationError, match=r"'bytes_up': got nan, needed a whole number"):
        history.record(round=3, bytes_up=math.nan)
    with pytest.raises(ConfigurationError, match=r"participants: got \(1, 1\)"):
        history.record(round=3, participants=[[1]])
    with pytest.raises(ConfigurationError, match=r"differ in length: \{'weight': 2, 'name': 1\}"):
        history.set_clients(weight=[1, 2], name=["a"])
    with pytest.raises(ConfigurationError, match="column 'weight': needed values of type double"):
        history.set_clients(weight=["heavy"])
    assert len(history) == 1, "a refused record leaves no trace"
    history.record(round=3, test_loss=1.0)
    assert history.rounds["test_loss"].to_pylist() == [None, 1.0]


@pytest.mark.parametrize("name", FILES)
def test_missing_and_damaged_files_are_refused(tmp_path, name):
    history = History()
    play(history, range(1, 3000))
    history.set_clients(weight=np.random.default_rng(0).random(1000))
    history.save(tmp_path)
    path, content = tmp_path / name, (tmp_path / name).read_bytes()

    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=rf"{name} is damaged \(its digest is not the one in SHA256SUMS\)"):
        History.load(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()  # a run of an older version
    with pytest.raises(CheckpointError, match=f"{name} is damaged .* Restore it from a copy, or run again"):
        History.load(tmp_path)
    middle = len(content) // 4
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        History.load(tmp_path)
    pq.write_table(pa.table({"other": [1]}), path)
    with pytest.raises(CheckpointError, match=f"{name} is damaged or not a table of a run: it"):
        History.load(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"holds no {name}: give the folder of a run"):
        History.load(tmp_path)


def test_wrong_types_and_unordered_rounds_are_refused(tmp_path):
    history = History()
    play(history, range(1, 4))
    history.save(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    rounds = history.rounds
    pq.write_table(rounds.take([1, 0, 2]), tmp_path / "rounds.parquet")
    with pytest.raises(CheckpointError, match="its rounds do not ascend"):
        History.load(tmp_path)
    wrong = rounds.set_column(0, "round", pa.array(["a", "b", "c"]))
    pq.write_table(wrong, tmp_path / "rounds.parquet")
    with pytest.raises(CheckpointError, match="its column 'round' is string, not int64"):
        History.load(tmp_path)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_full_disk_leaves_the_last_tables(tmp_path, monkeypatch, failing):
    history, write, calls = History(), query.write, []
    play(history, range(1, 11))
    history.save(tmp_path)
    before = tables(history)
    play(history, range(11, 21))

    def full(path, *arguments):
        calls.append(path)
        write(path, *arguments)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(query, "write", full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*free some space or give another folder"):
        history.save(tmp_path)
    assert tables(History.load(tmp_path)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "SHA256SUMS"]), (
        "no temporary file is left behind"
    )


def test_crash_between_files_leaves_a_readable_history(tmp_path):
    """Participation is replaced before the rounds: what it has beyond them is ignored."""
    history, reference = History(), History()
    play(history, range(1, 11))
    history.save(tmp_path)
    older = (tmp_path / "rounds.parquet").read_bytes(), (tmp_path / "SHA256SUMS").read_bytes()
    play(history, range(11, 21))
    history.save(tmp_path)
    (tmp_path / "rounds.parquet").write_bytes(older[0])
    (tmp_path / "SHA256SUMS").write_bytes(older[1] + (tmp_path / "SHA256SUMS").read_bytes())
    play(reference, range(1, 11))
    assert tables(History.load(tmp_path)) == tables(reference)


RUN = """
import sys
import turnout as to

data = to.data.digits().split(to.partition.Dirichlet(alpha=0.1), num_clients=10)
result = to.Experiment(data, to.models.Logistic(), rounds=2).run(sys.argv[1])
result.history.column("local_loss"), result.history.client_column("weight")
to.load(sys.argv[1])
print("pandas" in sys.modules)
"""


def test_recording_and_loading_a_run_does_not_import_pandas(tmp_path):
    """Arrow imports it for its own conversions, where it is installed, which takes half a second."""
    ended = subprocess.run([sys.executable, "-c", RUN, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"


def test_columns_of_numbers_keep_nulls_and_nan_apart():
    column = pa.chunked_array([array_of([1.5, None, float("nan")], pa.float64())])
    assert column.null_count == 1
    assert is_known(column).tolist() == [True, False, True]
    assert np.isnan(column[2].as_py())
    assert array_of(np.array([1.5, np.nan]), pa.float64(), nan_is_null=True).to_pylist() == [1.5, None]
    assert array_of([None, 2**62], pa.int64()).to_pylist() == [None, 2**62]
    assert numbers(pa.chunked_array([array_of([3], pa.int64())] * 2)).tolist() == [3, 3]
    with pytest.raises(TypeError, match="got an array of shape"):
        array_of([1.5], pa.int64())


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_empty_column_of_numbers_has_its_type(kind):
    """Numbers of clients without a row are integers: a private run has no table of participation."""
    assert numbers(pa.chunked_array([], kind)).dtype == kind.to_pandas_dtype()
