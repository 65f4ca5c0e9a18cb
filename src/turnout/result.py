"""Hold the result of a run: the trained model, the models of clients, and the tables."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from torch import nn

from turnout.core.checks import ConfigurationError, counted, refuse
from turnout.core.display import html_table
from turnout.core.other_names import ExplainsAttributes
from turnout.data.preparation import FILE, Preparation
from turnout.engine.adapters import add_offsets
from turnout.export import usage
from turnout.export.card import CARD, card_of
from turnout.export.predicting import Predicting
from turnout.export.state import STATES, format_of
from turnout.export.traced import traced
from turnout.export.usage import builder
from turnout.models.pretrained import save_adapter
from turnout.record import storage
from turnout.record.contents import RunConfig
from turnout.record.query import History
from turnout.record.trained import Trained
from turnout.reporting.plot import plot
from turnout.reporting.progress import BY_IMPORTANCE, quality
from turnout.results.names import name_of
from turnout.results.scored import Scored
from turnout.simulation.running import trained
from turnout.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CONFIG = "config.json"
"""The file of a run folder that has the experiment as plain values."""


class Result(Predicting, Scored, ExplainsAttributes):
    """The result of a run: its model, the models of clients, and what was recorded.

    Args:
        history: everything that was recorded.
        trained: the numbers of the model.
        build: creates the module to load the parameters into; None for a run folder of a custom module.
        name: label in figures: the name of the algorithm, or of the folder that it was loaded from.
        config: the experiment as plain values; None where it is not known.
        input_shape: shape of an example, as the model takes it; None where it is not known.
        preparation: how rows of a table become inputs; None for other data.

    Attributes:
        history: the tables, with methods such as `History.column` and `History.reached`.

    Example:
        >>> import turnout as to
        >>> data = to.data.digits().split(to.partition.Iid(), num_clients=10)
        >>> result = to.Experiment(data=data, model=to.models.Logistic(), rounds=2).run()
        >>> list(result.state_dict())
        ['output.weight', 'output.bias']
        >>> result.model(data.train.x[:3]).shape
        torch.Size([3, 10])
        >>> result.rounds.num_rows
        2
    """

    def __init__(
        self,
        history: History,
        trained: Trained,
        build: Callable[[], nn.Module] | None,
        name: str = "run",
        config: Mapping[str, Any] | None = None,
        input_shape: Sequence[int] | None = None,
        preparation: usage.Prepared | None = None,
    ) -> None:
        self.history, self.name, self.config, self._trained, self._build = history, name, config, trained, build
        self._input_shape = None if input_shape is None else tuple(input_shape)
        self.preparation = preparation

    def __repr__(self) -> str:
        empty = self.history.empty_rounds().get("empty_rounds", 0)
        rounds = counted(self.history.last_round, "round") + f" ({empty:,} without participants)" * bool(empty)
        summary = self.summary()
        judged = [quality(name, summary[name], 1) for name in BY_IMPORTANCE if name in summary][:1]
        stopped = [f"stopped by {name_of(self.history.stopped_by)}"] if self.history.stopped_by else []
        return f"Result({', '.join([repr(self.name), rounds, *judged, *stopped])})"

    def _repr_html_(self) -> str:
        """Return the final figures, for notebooks."""
        figures = {name: value for name, value in self.summary().items() if isinstance(value, int | float)}
        shown = {
            name_of(name): f"{value:.1%}" if name.endswith("accuracy") else f"{value:,.4g}"
            for name, value in figures.items()
        }
        return html_table(f"Result of {self.name}", {"rounds": f"{self.history.last_round:,}"} | shown)

    @classmethod
    def of(cls, simulation: Simulation) -> Result:
        """Return the result of a simulation after its last completed step."""
        experiment = simulation.experiment
        return cls(
            simulation.history,
            trained(simulation),
            experiment.build_model,
            experiment.algorithm.name,
            simulation.description,
            experiment.data.input_shape,
            experiment.data.preparation,
        )

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, a copy of its own on the CPU, in evaluation mode.

        If clients have a personal part, it is the model with which a new client starts.

        Raises:
            ConfigurationError: if the run trained a module of the user, which `load` takes as ``model``.
        """
        return self._with(None)

    def personal_model(self, client: int) -> nn.Module:
        """Return the model of one client: the shared model with its personal part, or its personal model (Ditto).

        Raises:
            ConfigurationError: if clients have nothing of their own, or there is no such client; and as `model`.
        """
        return self._with(client)

    def state_dict(self, client: int | None = None) -> dict[str, torch.Tensor]:
        """Return the state dict of the trained model, or of the model of a client.

        For a built-in model it has the trainable tensors only: for a model with LoRA, those of the adapter.

        Raises:
            ConfigurationError: if clients have nothing of their own, or there is no such client.
        """
        return self._trained.tensors(client)

    def export(
        self,
        path: str | Path,
        client: int | None = None,
        *,
        format: str | None = None,
        example: torch.Tensor | None = None,
        card: bool = False,
    ) -> Path:
        """Write the trained model, or the model of a client, to a file that is used without turnout.

        - Safetensors and torch files have the state dict: ``model.load_state_dict(safetensors.torch.load_file(path))``, and
          ``model.load_state_dict(torch.load(path, weights_only=True))``.
        - An ONNX file has the complete model, with input ``input [M, ...]`` and output ``output [M, ...]`` for any M. It is
          written only if onnxruntime computes the same outputs as torch.
        - An ExecuTorch file has the model with its loss and gradients, for training on a device, with inputs ``[M, ...]`` and
          targets ``[M]``, where M is that of `example`, or 16. It is written only if its gradients equal those of torch.
        - An adapter of `peft` is a folder: ``peft.PeftModel.from_pretrained(base, path)``.

        If the run was on a table, ``preprocessing.json`` beside the file has the columns with their means, deviations and
        categories, and the names of classes; `turnout.data.Preparation` applies it. A safetensors file also has it as
        metadata, with an expression of torch for the module.

        Args:
            path: the file or folder.
            client: number of the client whose model is written; None is the shared model.
            format: ``"safetensors"``, ``"torch"``, ``"onnx"``, ``"executorch"`` or ``"peft"``; None determines it by the
                ending of the file: ``.safetensors``, ``.pt`` or ``.pth``, ``.onnx``, ``.pte``.
            example: inputs ``[M, ...]`` to trace the model; required for your own module loaded from a run folder.
            card: whether to write ``model-card.md`` beside it, with the data, the figures, and how to load the model.

        Raises:
            ConfigurationError: if clients have no models of their own, or there is no such client; if the ending is unknown
                or contradicts `format`; if an extra is missing, or the model cannot be exported.
            CheckpointError: if a file cannot be written; existing files are then unchanged.
        """
        target = Path(path)
        format = format_of(target, format)
        files = dict[Path, storage.Write]()
        if format == "peft":
            save_adapter(self._with(client), target)
        elif format in STATES:
            data = STATES[format](self.state_dict(client), usage.metadata(self._module(client), self.preparation))
            files[target] = partial(Path.write_bytes, data=data)
        else:
            data = traced(self._with(client), format, example, self._input_shape, self._num_classes)
            files[target] = partial(Path.write_bytes, data=data)
        beside = target if format == "peft" else target.parent
        if isinstance(self.preparation, Preparation):
            files[beside / FILE] = storage.text_writer(self.preparation.text())
        if card:
            text = card_of(
                self.name, self.history, self.state_dict(client), self.config, target.name, format, client,
                self.preparation, self._module(client),
            )  # fmt: skip
            files[beside / CARD] = storage.text_writer(text)
        storage.replace_files(files)
        return target

    @property
    def rounds(self) -> pa.Table:
        """One row per recorded round; see `History.rounds`."""
        return self.history.rounds

    @property
    def clients(self) -> pa.Table:
        """One row per client; see `History.clients`."""
        return self.history.clients

    @property
    def participation(self) -> pa.Table:
        """The clients that took part in each round; see `History.participation`."""
        return self.history.participation

    def summary(self, window: int | None = None) -> dict[str, Any]:
        """Return final figures as plain numbers; see `History.summary`."""
        return self.history.summary(window)

    def plot(self, what: str | None = None) -> Figure:
        """Draw the run as a matplotlib figure; see `turnout.plot`, which also draws several runs in one figure."""
        return plot({self.name: self}, what)

    def _module(self, client: int | None) -> nn.Module | None:
        """Return the module of the shared model, or of a client's; None where the run folder does not hold it."""
        return None if self._build is None else self._with(client)

    def _with(self, client: int | None) -> nn.Module:
        """Return a module with the parameters of the shared model, or of a client's."""
        tensors = self.state_dict(client)
        if self._build is None:
            raise ConfigurationError(
                "the run trained your own module, which its folder does not contain: write to.load(folder, model=Net()) "
                "with a new one of the same class and options, or take state_dict()"
            )
        module, dtype = copy.deepcopy(self._build()), self._trained.params.dtype
        if any(parameter.requires_grad and parameter.dtype != dtype for parameter in module.parameters()):
            module = module.to(dtype)
        add_offsets(module, self._trained.adapters, dtype)
        ready_made = self._trained.spec is not None  # its frozen tensors are those that were built
        extra = {
            name: value
            for name, value in module.state_dict().items()
            if ready_made or not isinstance(value, torch.Tensor)
        }
        try:
            module.load_state_dict(extra | tensors)
        except RuntimeError as error:
            raise ConfigurationError(
                f"model: the run trained another module than this {type(module).__name__}: {error}"
            ) from error
        return module.cpu().eval()


def load(folder: str | Path, model: nn.Module | None = None) -> Result:
    """Load the result of a finished or unfinished run: the model of its last checkpoint, and the tables up to it.

    Args:
        folder: folder of a run, e.g. ``"runs/fedau-digits-0"``.
        model: a module of the class that was trained, if it was your own; a built-in model is rebuilt.

    Raises:
        CheckpointError: if there is no run, or a file of it is damaged.
        ConfigurationError: if `model` is not a module.
    """
    folder = Path(folder)
    trained, version = Trained.load(folder)
    storage.check_all(folder)
    if model is not None and not isinstance(model, nn.Module):
        raise refuse("model", given=model, needed="a torch.nn.Module, or None where the run trained a ready-made model")
    build = builder(folder, trained) if model is None else lambda: model
    config = None
    if (folder / CONFIG).exists():
        config = storage.read_json(folder / CONFIG, instead="give the folder of a run", form=RunConfig)
    shape = None if trained.spec is None else trained.spec["input_shape"]
    preparation = usage.preparation_of(config)
    return Result(History.load(folder, version), trained, build, folder.resolve().name, config, shape, preparation)
