"""Hold the whole configuration of a run, frozen and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from numbers import Integral
from typing import Annotated

from torch import nn

from turnout.base import PoolsExamples, TakesAll
from turnout.base.algorithm import ALGORITHMS, Algorithm
from turnout.core.checks import ConfigurationError, check_seed, count, refuse, shown
from turnout.core.device import check_device
from turnout.core.display import html_table, short
from turnout.core.earlier_names import present
from turnout.core.numerics import default_settings
from turnout.core.other_names import ExplainsArguments
from turnout.core.ranges import Count, Probability
from turnout.data.federated import FederatedData
from turnout.data.preparation import Preparation
from turnout.data.source import Source
from turnout.data.weights import ClassWeights, check_class_weights
from turnout.engine.batch_norm import Statistics, following
from turnout.engine.choice import Engine, Precision
from turnout.engine.loss import Loss, OfExamples, cross_entropy
from turnout.engine.reading import has_one_label, metric_of
from turnout.evaluation.appeal import AppealMetrics
from turnout.evaluation.gradients import GradientMetrics
from turnout.evaluation.metrics import METRICS, Metric, named, of_logits
from turnout.evaluation.sums import SumsForm
from turnout.models import ModelSpec
from turnout.population import Population
from turnout.population.availability.base import Availability
from turnout.population.requirement import WarmUp
from turnout.population.speed.distributions import UNEQUAL
from turnout.protocol.answer_sum import AnswerSum
from turnout.protocol.fits import check_pace, check_privacy
from turnout.protocol.pace import Buffered, BufferedGroups, Pace, Rounds


def _instead(name: str, value: object) -> str:
    """Return what to write in place of a value of the wrong type."""
    if name == "data":
        if isinstance(value, tuple) and 2 <= len(value) <= 3:
            clients = ", client_ids=clients" if len(value) == 3 else ""
            partition = "" if len(value) == 3 else "to.partition.Iid(), num_clients=10"
            return f"to.data.from_arrays(x, y{clients}).split({partition})"
        if isinstance(value, Source):
            return "source.split(to.partition.Iid(), num_clients=10)"
        return "to.data.from_dataset(dataset).split(to.partition.Iid(), num_clients=10), or to.data.from_arrays(x, y)"
    if name == "pace":
        return "Rounds() or Buffered(buffer_size=10)"
    if name == "population":
        kind = value if isinstance(value, type) else type(value)
        made = f"{kind.__name__}()" if issubclass(kind, Availability) else "Markov()"
        return f"Population(availability={made})"
    recipe = getattr(value, "__name__", value)
    if not isinstance(recipe, str) or recipe not in ALGORITHMS:
        return "a recipe such as to.fedavg() or to.fedau()"
    return f"to.{recipe}()"


_ACCURACY_BINS = 20  # of clients, where a server learns sums of their answers alone


@dataclass(frozen=True, eq=False)
class Configuration(ExplainsArguments):
    """Everything that determines a result, checked. Arguments and errors are those of `turnout.Experiment`, which runs it."""

    data: FederatedData
    model: ModelSpec | nn.Module
    algorithm: Algorithm
    population: Population = field(default_factory=Population)
    pace: Pace = field(default_factory=Rounds)
    rounds: Count = 100
    seed: int = 0
    evaluate_every: Count = 10
    evaluate_share: Probability = 0.0
    evaluation_examples: Count | None = None
    label_groups: tuple[tuple[int, ...], ...] | None = None
    appeal: AppealMetrics | None = None
    gradients: GradientMetrics | None = None
    metrics: tuple[str | Metric, ...] = ()
    record_weights: bool = False
    loss: Loss = cross_entropy
    class_weights: ClassWeights | None = None
    engine: Engine = "auto"
    precision: Precision = "full"
    statistics: Statistics = "own"
    device: str = "cpu"
    memory_budget: Annotated[int, partial(count, least=1 << 20, instead="It is in bytes")] | None = None

    def __post_init__(self) -> None:
        self._check_kinds()
        if isinstance(self.algorithm.selection, PoolsExamples):  # where all examples are, nobody is absent or slow
            object.__setattr__(self, "population", Population())
            object.__setattr__(self, "pace", Rounds())
        if isinstance(self.pace, Buffered | BufferedGroups) and self.population.speed is None:
            object.__setattr__(self, "population", replace(self.population, speed=UNEQUAL))
        if self.label_groups is not None and self.algorithm.personal is not None:
            raise ConfigurationError(
                "label_groups: with a personal part there is no one model whose accuracies these are"
            )
        self._choose_loss()
        if not self.data.has_labels:
            self._check_without_labels()
        if self.class_weights is not None:
            check_class_weights(self.class_weights, self.data.num_outputs if self.data.has_labels else None)
        check_seed(self.seed)
        object.__setattr__(self, "engine", present(self.engine))
        if self.precision == "bf16" and (reason := self.algorithm.local.traits.refuses_bf16) is not None:
            raise ConfigurationError(f"precision='bf16': {reason}: leave precision out")
        check_pace(self.pace, self.algorithm, self.data.num_clients)
        weights = "weights of examples" if self.data.train.weights is not None else None
        weights = "class_weights" if self.class_weights is not None else weights
        check_privacy(self.algorithm, self.population, self.pace, self.rounds, weights)
        self._check_preparation()
        self._check_label_groups()
        self.named_metrics()
        check_device(self.device)

    def _check_preparation(self) -> None:
        """Reject a private run whose preparation was fitted to training rows, because it is published with the model."""
        preparation = self.data.preparation
        if self.algorithm.noised_privacy is None or preparation is None:
            return
        fitted = preparation.fitted if isinstance(preparation, Preparation) else (type(preparation.transform).__name__,)
        if fitted:
            raise ConfigurationError(
                f"data: means, deviations or categories of {', '.join(fitted)} are computed from training rows and published "
                "with the model, without noise: declare them in from_table (mean=, std=, categories={...}), or leave out "
                "scale, missing='fill' and transform"
            )

    def named_metrics(self) -> dict[str, Metric]:
        """Return the metrics by name; see `turnout.evaluation.metrics.named` for what is refused.

        Ready-made ones receive logits with classes on the last axis, as which the outputs are read for the loss.
        """
        y = self.data.train.y
        functions = named(self.metrics, has_one_label(self.loss, y), metric_of(y, self.loss) == "rmse")
        return {
            name: partial(of_logits, function, self.loss) if METRICS.get(name) is function else function
            for name, function in functions.items()
        }

    def sums_form(self) -> SumsForm:
        """Return the form of the sums that clients of a server send to evaluate a model on their own test examples."""
        algorithm, population = self.algorithm, self.population
        alone = (population.requirement or WarmUp()).solo(algorithm.local) is not None
        return SumsForm(
            tuple(map(tuple, self.label_groups or ())),
            self.named_metrics(),
            self.appeal is not None,
            alone and self.data.has_labels,
            algorithm.personal is not None,
            metric := metric_of(self.data.train.y, self.loss),
            _ACCURACY_BINS if metric == "accuracy" and AnswerSum.of(algorithm) is not None else 0,
        )

    def _check_label_groups(self) -> None:
        """Refuse groups of labels that are empty or name labels that do not exist."""
        num_classes = self.data.num_classes or 0
        for group in self.label_groups or ():
            labels = group if isinstance(group, Sequence) else ()
            if not labels or not all(isinstance(label, Integral) and 0 <= label < num_classes for label in labels):
                raise refuse(
                    "label_groups",
                    given=self.label_groups,
                    needed=f"groups of one label or more, each from 0 to {num_classes - 1}",
                    instead="Write label_groups=((0, 1),) for one group of two labels",
                )

    def check_budget(self) -> None:
        """Refuse a new run that would exceed its privacy budget, or whose epsilon cannot be computed for want of a package.

        Clients of a server do not call it: they spend nothing, and need no package. A run that goes on uses the correlation
        that was searched when it began.
        """
        if (plan := self.algorithm.privacy) is not None:
            plan.check(self.rounds, plan.most_answers)

    def _check_kinds(self) -> None:
        """Refuse values of the wrong type."""
        kinds = {"data": FederatedData, "algorithm": Algorithm, "population": Population, "pace": Pace}
        for name, kind in kinds.items():
            if not isinstance(value := getattr(self, name), kind):
                article = "an" if kind.__name__[0] in "AEIOU" else "a"
                raise ConfigurationError(
                    f"{name} must be {article} {kind.__name__}, got {shown(value)}: write {_instead(name, value)}"
                )
        if not isinstance(self.model, ModelSpec | nn.Module):
            name = getattr(self.model, "__name__", "Net")
            made = (
                f"{name}(...), the module itself" if callable(self.model) and name.isidentifier() else "to.models.Mlp()"
            )
            raise ConfigurationError(
                f"model must be a ModelSpec or a torch.nn.Module, got {shown(self.model)}: write {made}"
            )
        for name, kind in {"appeal": AppealMetrics, "gradients": GradientMetrics}.items():
            if not isinstance(value := getattr(self, name), kind | None):
                raise ConfigurationError(
                    f"{name} must be {kind.__name__}(), or None for no such columns, got {value!r}"
                )
        if not isinstance(self.record_weights, bool):
            raise refuse("record_weights", given=self.record_weights, needed="True or False")

    def _choose_loss(self) -> None:
        """Use the loss of the model specification by default, and wrap a loss module as a function."""
        if isinstance(self.model, ModelSpec) and self.model.loss is not None and self.loss is cross_entropy:
            object.__setattr__(self, "loss", self.model.loss)
        if isinstance(self.loss, nn.Module):
            object.__setattr__(self, "loss", loss := OfExamples(self.loss))
            self._check_ignored(loss)
        if not callable(self.loss) or isinstance(self.loss, type):
            made = (
                f"{self.loss.__name__}()" if isinstance(self.loss, type) else "to.loss.cross_entropy or squared_error"
            )
            raise ConfigurationError(f"loss must be a function of (outputs, targets), got {self.loss!r}: write {made}")

    def _check_ignored(self, loss: OfExamples) -> None:
        """Refuse a loss that ignores whole examples, which would count in every mean."""
        for name, shards in self.data.splits.items() if self.data.has_labels else ():
            if (shards.y == loss.ignored).any():
                raise ConfigurationError(
                    f"loss: {type(loss.module).__name__} ignores the label {loss.ignored}, which is that of examples of the "
                    f"{name} data and would count as a loss of 0: leave these examples out of the data"
                )

    def _check_without_labels(self) -> None:
        """Refuse options that need one class label for each example."""
        numbers = f"the targets of {self.data.name} are {self.data.train.y.dtype} {list(self.data.train.y.shape)}"
        if self.label_groups is not None:
            raise ConfigurationError(f"label_groups: {numbers}, which are no class labels: leave it out")
        if self.data.num_classes is not None:  # labels of tokens
            return
        if self.loss is cross_entropy:
            raise ConfigurationError(
                f"loss: {numbers}, and cross-entropy is about class labels: write "
                "loss=to.loss.squared_error to predict numbers, or give labels as whole numbers: y.astype(int), or "
                "y.argmax(1) of one-hot rows"
            )
        if getattr(self.population.requirement, "measure", None) == "accuracy":
            raise ConfigurationError(f"requirement: {numbers}, which have no accuracy: write measure='loss'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._settings().items())})"

    def _repr_html_(self) -> str:
        """Return the settings that differ from the defaults, for notebooks."""
        return html_table(f"Experiment: {self.algorithm.name} on {self.data.name}", self._settings())

    def _settings(self) -> dict[str, str]:
        """Return short texts of the settings that determine the result, by name."""
        model = type(self.model).__name__ if isinstance(self.model, nn.Module) else short(self.model)
        always = {"data": repr(self.data), "model": model, "algorithm": repr(self.algorithm)}
        others = {entry.name: short(getattr(self, entry.name)) for entry in fields(self) if entry.name not in always}
        plain = {entry.name: short(entry.default) for entry in fields(self)}
        shown = ("population", "pace", "rounds", "seed")
        return always | {name: text for name, text in others.items() if name in shown or text != plain[name]}

    @property
    def everyone_available_takes_part(self) -> bool:
        """True if clients take part exactly when they are available."""
        alone = self.population.opting is None and self.population.separation is None
        return isinstance(self.algorithm.selection, TakesAll) and alone

    @default_settings()
    def build_model(self) -> nn.Module:
        """Return the model with its initial parameters."""
        if isinstance(self.model, nn.Module):
            self._check_normalization(self.model)
            return self.model
        self.model.fits(self.data)
        module, kind = self.model.build(self.data.input_shape, self.data.num_outputs, self.seed), self.data.input_dtype
        self._check_normalization(module)
        return module.to(kind) if kind.is_floating_point else module

    def _check_normalization(self, module: nn.Module) -> None:
        """Refuse running statistics where a local step evaluates the model at parameters that no client keeps."""
        if (reason := self.algorithm.local.traits.refuses_batch_norm) is not None and following(module):
            raise ConfigurationError(
                f"{type(module).__name__} has layers of BatchNorm, and {reason}: write to.models.group_norm(model)"
            )
