"""Callbacks, which observe a run and may end it."""

import threading
from contextlib import nullcontext

import pytest
import torch

import turnout as to
from turnout import AfterRound, Callback, ConfigurationError, Experiment, Interrupted, models
from turnout.comparison.folders import load_record
from turnout.record.query import History
from turnout.reporting.report import write_report
from turnout.results.formats import latex
from turnout.results.table import comparison


class Notebook(Callback):
    """Writes down what it is told."""

    def __init__(self, last=None):
        self.told, self.last = [], last

    def on_start(self, config, folder):
        self.told.append(("start", config["rounds"], folder))

    def on_round(self, row):
        self.told.append(("round", row["round"], "num_participants" in row or "weight_sum" in row))
        return row["round"] == self.last

    def on_end(self, summary):
        self.told.append(("end", summary["status"], summary["rounds"]))


def small(tiny, **options):
    return Experiment(tiny, models.Logistic(), to.fedavg(), rounds=4, evaluate_every=2, **options)


def test_callbacks_are_called_in_order(tiny, tmp_path):
    one, other = Notebook(), Notebook()
    small(tiny).run(tmp_path, callbacks=[one, other])
    rounds = [("round", number, True) for number in range(1, 5)]
    assert one.told == other.told == [("start", 4, tmp_path), *rounds, ("end", "finished", 4)]


def test_run_ended_by_a_callback_is_complete(tiny, tmp_path):
    stops, late = Notebook(last=2), Notebook()
    result = small(tiny).run(tmp_path, callbacks=[stops, late])
    assert late.told[-2:] == [("round", 2, True), ("end", "stopped", 2)]  # who comes after it is told, too
    assert result.rounds.num_rows == 2
    assert result.clients.num_rows == tiny.num_clients
    assert History.load(tmp_path).last_round == 2
    assert small(tiny).run(tmp_path, resume=True).rounds.num_rows == 4


def test_run_interrupted_by_a_callback_resumes(tiny, tmp_path):
    def interrupt(row):
        if row["round"] == 3:
            raise Interrupted("enough for today")

    watching = Notebook()
    with pytest.raises(Interrupted, match="enough for today"):
        small(tiny).run(tmp_path, checkpoint_every=100, callbacks=[AfterRound(interrupt), watching])
    assert watching.told[-1] == ("end", "interrupted", 3)
    again = Notebook()
    small(tiny).run(tmp_path, resume=True, callbacks=[again])
    assert again.told == [("start", 4, tmp_path), ("round", 4, True), ("end", "finished", 4)]


def test_callbacks_are_notified_of_a_failed_run(tiny):
    def fail(_):
        raise RuntimeError("no")

    watching = Notebook()
    with pytest.raises(RuntimeError, match="no"):
        small(tiny).run(callbacks=[watching, AfterRound(fail)])
    assert watching.told[-1] == ("end", "failed", 1)


def test_non_callback_is_refused(tiny):
    with pytest.raises(ConfigurationError, match=r"callbacks: got <function .*: write AfterRound\(function\)"):
        small(tiny).run(callbacks=[lambda _: None])  # type: ignore[list-item]


class Told(Callback):
    """Remembers what it is told of long work, and may stop the run as Ctrl-C does."""

    def __init__(self, stopped: threading.Event | None = None) -> None:
        self.found: list[tuple[str, int, int]] = []
        self.stopped = stopped

    def on_work(self, what: str, done: int, total: int) -> None:
        self.found.append((what, done, total))
        if self.stopped is not None:
            self.stopped.set()


def own_models() -> Experiment:
    """Twenty-four clients who train models of their own before the first round."""
    data = to.data.digits().split(to.partition.Iid(), num_clients=24)
    return Experiment(data, models.Logistic(), to.maxfl(to.Sgd(steps=1), cohort_size=3), rounds=1)


def test_long_work_within_a_round_reports_progress():
    told = Told()
    own_models().run(callbacks=[told])
    assert told.found == [("own models", done, 24) for done in (10, 20, 24)]


def test_ctrl_c_interrupts_long_work(monkeypatch, tmp_path):
    stopped = threading.Event()
    monkeypatch.setattr("turnout.experiment.stops_on_signal", lambda: nullcontext(stopped))
    told = Told(stopped)
    with pytest.raises(Interrupted, match=r"within a round, at own models \(10 of 24 clients\); nothing was saved"):
        own_models().run(tmp_path / "run", callbacks=[told])
    assert len(told.found) == 1


def told(stopping, values, metric="test_accuracy"):
    """In which round it ends a run that evaluates in every other one, or None."""
    rows = [{"round": i, metric: values[i // 2] if i % 2 == 0 else None} for i in range(2 * len(values))]
    stopping.on_start({}, None)
    return next((row["round"] for row in rows if stopping.on_round(row)), None)


def test_early_stopping_stops_without_improvement():
    values = [0.1, 0.5, 0.4, 0.5, 0.6, 0.6, 0.6, 0.9]
    assert told(to.EarlyStopping(patience=2), values) == 6
    assert told(to.EarlyStopping(patience=3), values) is None
    assert told(to.EarlyStopping(patience=3, least=0.2), values) == 8
    assert told(to.EarlyStopping(target=0.6), values) == 8
    assert told(to.EarlyStopping(target=0.95), values) is None


def test_early_stopping_minimizes_losses():
    values = [2.0, 1.0, 1.5, 1.2, 0.4]
    assert told(to.EarlyStopping(patience=2, metric="test_loss"), values, "test_loss") == 6
    assert told(to.EarlyStopping(target=0.5, metric="test_loss"), values, "test_loss") == 8


@pytest.mark.parametrize(("fraction", "column"), [(0.2, "validation_accuracy"), (0.0, "test_accuracy")])
def test_run_says_which_examples_ended_it(fraction, column, tmp_path, capsys):
    data = to.data.digits().split(to.partition.Iid(), num_clients=4, validation_fraction=fraction)
    run = Experiment(data, models.Logistic(), to.fedavg(to.Sgd(lr=1e-9)), rounds=9, evaluate_every=1)
    result = run.run(tmp_path / "run", progress=True, callbacks=[to.EarlyStopping(patience=2)])
    assert result.history.last_round == 3
    biased = "the test accuracy ended the run, so figures of test examples are biased: hold out validation examples"
    assert (biased in capsys.readouterr().err) == (column == "test_accuracy")
    assert f"stopped by {column.replace('_', ' ')}" in repr(result)
    for of in (result, to.load(tmp_path / "run")):
        assert of.summary()["stopped_by"] == column
    record = load_record(tmp_path / "run")
    page = write_report([record], tmp_path / "report.html").read_text()
    assert (biased in page) == (column == "test_accuracy")
    assert (biased in latex(comparison([record]))) == (column == "test_accuracy")
    result.export(tmp_path / "m.pt", card=True)
    assert ("The test accuracy ended the run" in (tmp_path / "model-card.md").read_text()) == (
        column == "test_accuracy"
    )


def test_run_that_ended_by_its_rounds_was_stopped_by_nothing(tiny, tmp_path):
    run = Experiment(tiny, models.Logistic(), to.fedavg(to.Sgd(lr=1e-9)), rounds=9, evaluate_every=1)
    assert "stopped_by" not in run.run(callbacks=[to.EarlyStopping(patience=20)]).summary()
    stopped = run.run(tmp_path, callbacks=[to.EarlyStopping(patience=2)])
    assert stopped.summary()["stopped_by"] == "test_accuracy"
    assert "stopped_by" not in run.run(tmp_path, resume=True).summary(), "the rest of the rounds were taken"
    assert "stopped_by" not in to.load(tmp_path).summary()
    assert "stopped_by" not in run.run(callbacks=[AfterRound(lambda row: row["round"] == 2)]).summary()


def test_resumed_run_stops_at_the_same_round(tiny, tmp_path):
    run = Experiment(tiny, models.Logistic(), to.fedavg(to.Sgd(lr=1e-9)), rounds=9, evaluate_every=1)
    whole = run.run(callbacks=[to.EarlyStopping(patience=4)])
    assert whole.rounds.num_rows == 5

    def interrupt(row):
        if row["round"] == 3:
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        run.run(tmp_path, callbacks=[to.EarlyStopping(patience=4), AfterRound(interrupt)])
    resumed = run.run(tmp_path, resume=True, callbacks=[to.EarlyStopping(patience=4)])
    assert resumed.rounds["round"].to_pylist() == whole.rounds["round"].to_pylist()


@pytest.mark.parametrize(
    "name", ["mse", "nll", "brier_score", "deviance", "mape", "cross_entropy", "ece", "error_rate", "log_loss"]
)
def test_metrics_that_fall_as_models_improve_do_not_end_a_run(name):
    stopping = to.EarlyStopping(patience=1, metric=f"validation_{name}")
    stopping.on_start({}, None)
    assert not any(stopping.on_round({f"validation_{name}": value}) for value in (3.0, 2.0, 1.0))
    assert stopping.on_round({f"validation_{name}": 1.5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "write patience=10, target=0.9, or both"),
        ({"patience": 0}, "patience"),
        ({"target": float("nan")}, "target: got nan"),
        ({"patience": 1, "least": -1}, "least"),
    ],
)
def test_early_stopping_without_effect_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        to.EarlyStopping(**options)


def test_early_stopping_lists_available_metrics(tiny):
    with pytest.raises(ConfigurationError, match=r"no 'test_acuracy' in an evaluation, which has .*test_accuracy"):
        small(tiny).run(callbacks=[to.EarlyStopping(target=0.5, metric="test_acuracy")])


class Watcher(Callback):
    """Takes the model after each round."""

    def __init__(self):
        self.states, self.correct = [], []

    def on_round(self, row):
        result = self.current_result()
        assert result.rounds.num_rows == row["round"]
        self.states.append(result.state_dict())
        self.correct.append(result.model)

    def on_end(self, summary):
        del summary
        assert torch.equal(self.current_result().state_dict()["output.weight"], self.states[-1]["output.weight"])


def test_callbacks_can_access_the_model_of_each_round(tiny, monkeypatch):
    watcher = Watcher()
    result = small(tiny).run(callbacks=[watcher])
    assert len(watcher.states) == 4
    for name, value in result.state_dict().items():
        assert torch.equal(watcher.states[-1][name], value)
        assert not torch.equal(watcher.states[0][name], value)
        assert torch.equal(watcher.correct[0].state_dict()[name], watcher.states[0][name])
    with pytest.raises(ConfigurationError, match="Watcher: there is no run at the moment"):
        watcher.current_result()
    made = []
    monkeypatch.setattr("turnout.experiment.Result.of", lambda simulation: made.append(simulation))
    small(tiny).run(callbacks=[Notebook()])
    assert len(made) == 1  # what the run returns


def test_callbacks_can_access_client_models(tiny):
    rows = []

    class Personal(Callback):
        def on_round(self, row):
            del row
            rows.append(self.current_result().state_dict(client=0)["output.bias"])

    result = Experiment(tiny, models.Mlp(hidden=(5,)), to.fedper(cohort_size=8), rounds=2).run(callbacks=[Personal()])
    assert torch.equal(rows[-1], result.state_dict(client=0)["output.bias"])
    assert not torch.equal(rows[0], rows[-1])


@pytest.mark.parametrize("callbacks", [Notebook(), 3])
def test_callbacks_must_be_a_list(tiny, callbacks):
    with pytest.raises(
        ConfigurationError, match=r"callbacks: got .*, needed a list of callbacks: write callbacks=\[...\]"
    ):
        small(tiny).run(callbacks=callbacks)
