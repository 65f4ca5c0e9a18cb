"""Compute the tasks of one client: `client_step` with one lane, on data that stay where they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from turnout.configuration import Configuration
from turnout.core.adapter import BASE_OFFSET
from turnout.core.checks import ConfigurationError
from turnout.core.types import Federation, Report, State, Task
from turnout.data.federated import Shards
from turnout.data.transforms import apply_transforms, bake
from turnout.deployment.client.answers import Answerer
from turnout.deployment.client.judge import answer
from turnout.deployment.wire.format import (
    Assignment,
    Manifest,
    Spec,
    WireError,
    compare,
    encode,
    manifest,
    model_tensors,
    split_model,
    told,
)
from turnout.deployment.wire.messages import Coding, report_body
from turnout.deployment.wire.surveys import question_of
from turnout.engine.choice import Choice
from turnout.engine.cohort import Clients
from turnout.engine.full_batch import full_scores
from turnout.engine.objective import Objective
from turnout.evaluation.queries import Question
from turnout.pieces.base.client_step import client_step
from turnout.pieces.base.phases import ClientSide
from turnout.pieces.base.tuning import tuned
from turnout.population.behaviour import BoundAttack
from turnout.population.requirement import BoundRequirement, WarmUp
from turnout.protocol.survey import FIRST_TASK, SURVEYS

log = logging.getLogger("turnout.client")

_WORST = np.finfo(np.float64).max  # of an own model that has diverged: any other is better


class Computer:
    """Hold what all clients on one machine share: the model's objective, the algorithm and the data. See `Worker`.

    Args:
        experiment: model, algorithm, loss, seed; of its data, what the clients here hold.
        engine: how the server's simulation would compute, so that results are the same to the last bit; None chooses.

    Attributes:
        objective: model and loss.
        memory: what a client remembers before it first takes part.
        model: the tensors that come with a task.
        told: what a client alone is told with one.
        test: test examples of the clients here; None where nobody has any.
        sums: what they give where they judge a model by these.
    """

    def __init__(self, experiment: Configuration, engine: str | None = None) -> None:
        self.experiment, algorithm = experiment, experiment.algorithm
        module, personalization = experiment.build_model(), algorithm.personal
        device = torch.device(experiment.device)
        personal = personalization.chosen(module) if personalization else frozenset()
        aggregation = algorithm.aggregation
        self.objective = Objective(
            module,
            experiment.loss,
            experiment.engine,
            device,
            personal,
            offsets=aggregation.moves_base,
            precision=experiment.precision,
        )
        if engine is not None:
            self.objective.use(Choice(engine, "as the server has it"))
        x, self.transforms = bake(experiment.data.transforms, experiment.data.train.x)
        train = experiment.data.train
        self.shards = Shards(x, train.y, train.offsets).to(device)
        held_out = experiment.data.client_test
        if held_out is not None:
            held_out = Shards(bake(experiment.data.transforms, held_out.x)[0], held_out.y, held_out.offsets).to(device)
        self.test, self.sums = held_out, experiment.sums_form()
        initial, num_shared = self.objective.initial, self.objective.layout.num_shared
        adapters = self.objective.network.adapters
        self.federation = Federation(
            1, num_shared, device=device, dtype=initial.dtype, seed=experiment.seed, adapters=adapters
        )
        first = initial[num_shared:] if personalization is None else personalization.first(initial, num_shared)
        self.memory = algorithm.memory(self.federation, first, self.objective.layout.shared_shapes)
        shared = dict.fromkeys(algorithm.keeps, initial[:num_shared])
        if aggregation.moves_base:
            shared[BASE_OFFSET] = aggregation.base_offset(aggregation.init(self.federation))
        sent = algorithm.broadcast_dtype(initial.dtype)
        self.model: Manifest = manifest(model_tensors(initial[:num_shared], shared, sent))
        self.told = _specs(told(algorithm.first_inputs(self.federation), 0))
        self.coding = Coding.of(algorithm, experiment.seed, self.objective)
        # An experiment of a population that opts, or of weights that compare, has clients who require something.
        measured = (*algorithm.measurements, *algorithm.selection.measurements)
        opts = experiment.population.opting is not None
        self.judges = opts or experiment.appeal is not None or any(m.of_requirement for m in measured)

    def check(self, task: Assignment) -> None:
        """Refuse a task that does not tell a client what it has to, or tells it something else.

        Raises:
            WireError: with what is missing or wrong.
        """
        if task.phase not in self.experiment.algorithm.aggregation.phases:  # in those, `phase_message` looks at it
            try:
                compare(_specs(task.told), self.told)
            except WireError as error:
                raise WireError(f"the server's task is not one of {self.experiment.algorithm.name}: {error}") from None

    def received(self, model: State) -> tuple[torch.Tensor, State]:
        """Return the model that comes with a task, and what else is broadcast, ready to be computed with."""
        device, dtype = self.federation.device, self.federation.dtype
        params, shared = split_model({name: value.to(device, dtype) for name, value in model.items()})
        self.objective.network.rebase(shared)
        return params, shared

    def clients(self, client: int, row: int) -> Clients:
        """Return one lane: a client and where its data are."""
        return Clients(np.array([client]), np.array([row]), self.shards, self.objective, self.transforms)


class Worker:
    """One client at work; a `Trainer`.

    Args:
        computer: what clients on this machine share.
        row: which client of the computer's data this is.
        behaviour: what it does to its reports, if it is one of those who do; for swarms.
        allows: whether it answers ``"evaluations"`` and ``"queries"``.
        functions: of inputs and targets of its examples, by the names that a query may ask for.
    """

    def __init__(
        self,
        computer: Computer,
        row: int = 0,
        behaviour: BoundAttack | None = None,
        allows: Collection[str] = ("evaluations", "queries"),
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._functions = functions or {}
        self._computer, self._row, self._behaviour, self._allows = computer, row, behaviour, allows
        self._requirement: BoundRequirement | None = None
        self._phases = computer.experiment.algorithm.aggregation.client_side()
        self._answers = Answerer(computer.experiment.algorithm, computer.sums, computer.experiment.data.widths)

    @property
    def model(self) -> Manifest:
        """The tensors that come with a task."""
        return self._computer.model

    def first_memory(self) -> State:
        """Return what a client remembers before it first takes part."""
        return {name: row.clone() for name, row in self._computer.memory.items()}

    def declines(self, task: Assignment) -> str | None:
        """Return why the client does not do a task, if it does not even look at the model."""
        if task.phase in self._computer.experiment.algorithm.phases:
            return None
        if task.phase not in SURVEYS:
            log.warning("the server asks for an unknown phase", extra={"task": task.task, "phase": task.phase})
            return "unknown"
        if self._answers.refuses or ("evaluations" if task.phase == "evaluate" else "queries") not in self._allows:
            return "refused"
        if task.phase == "evaluate":  # with noise, whether it has test examples is not to be known
            return None if self._answers.noised else self._lacks_test_examples()
        return self._cannot_answer(task)

    def _cannot_answer(self, task: Assignment) -> str | None:
        """Return why a query cannot be answered, if it cannot."""
        try:
            question = question_of(task)
            self._answers.check(question)
        except (WireError, ConfigurationError):
            return "unknown"
        return None if question.of in ("features", "targets", *self._functions) else "unknown"

    def _lacks_test_examples(self) -> str | None:
        test = self._computer.test
        return "no test examples" if test is None or not test.sizes[self._row] else None

    def do(self, client: int, task: Assignment, model: State, memory: State) -> tuple[bytes, State] | None:
        """Do a task: the report as bytes, and what the client remembers if the server takes it; None gives the task up.

        Raises:
            WireError: for a task of another algorithm.
        """
        if task.phase in SURVEYS:
            question = question_of(task) if task.phase == "query" else None
            sums = self._judged(client, model, memory) if question is None else self._asked(task, question)
            body = self._answers.first(client, task, question, sums)
            return None if body is None else (body, memory)
        if task.task >= FIRST_TASK:
            body = self._answers.later(task)
            return None if body is None else (body, memory)
        self._computer.check(task)
        if self._phases is not None and task.phase in self._computer.experiment.algorithm.aggregation.phases:
            return phase_message(self._phases, task, memory)
        computer, repeat = self._computer, np.array([task.repeat], dtype=np.int64)
        params, shared = computer.received(model)
        request = Task(
            params,
            task.version,
            computer.experiment.seed,
            task.phase,
            shared,
            task.tensors(),
            repeat if task.repeat else None,
        )
        rows = {name: value[None].clone() for name, value in memory.items()}
        lanes = replace(self._computer.clients(client, self._row), requirement=self._required(client))
        report, rows = client_step(computer.experiment.algorithm, request, rows, lanes)
        report = self._changed(report, request)
        after = {name: value[0] for name, value in rows.items()}
        if self._phases is None or task.phase != "train":
            return report_body(report), after
        tensors = self._phases.announce(client, task.version, report, after)
        return None if tensors is None else (encode(tensors), memory)

    def _judged(self, client: int, model: State, memory: State) -> dict[str, Any] | None:
        """Return the sums of an evaluation; None where they are not finite, or there are no test examples."""
        computer, (params, _) = self._computer, self._computer.received(model)
        if self._lacks_test_examples() is not None:
            return None
        required = self._required(client) if computer.sums.appeal else None
        assert computer.test is not None
        lane, personal = computer.clients(client, self._row), computer.experiment.algorithm.personal
        return answer(computer.sums, lane, computer.test, personal, params, memory, required)

    def _asked(self, task: Assignment, question: Question) -> dict[str, Any] | None:
        """Return the sums that a query asks for; None where they cannot be computed."""
        try:
            return self._sums_of(question)
        except Exception as error:  # of a function that somebody wrote for this client
            log.error("query not answered", extra={"task": task.task, "reason": repr(error)})
            return None

    def _sums_of(self, question: Question) -> dict[str, Any]:
        """Return the sums that a query asks for, of training examples as the model gets them."""
        computer, data = self._computer, self._computer.experiment.data
        x, y = computer.shards.client(self._row)
        x = apply_transforms(computer.transforms, x, None, training=False)
        if question.kind == "label_histogram" or question.of == "targets":
            values = y
        elif question.of == "features":
            values = x
        else:
            values = torch.as_tensor(self._functions[question.of](x, y))
            if values.shape != (len(y),):
                raise ConfigurationError(
                    f"{question.of} returns {tuple(values.shape)}, needed a number for each example"
                )
        return question.sums(values, data.widths["classes"])

    def _changed(self, report: Report, task: Task) -> Report:
        """Return the report as an attacker sends it, coded anew where it is coded."""
        if self._behaviour is None:
            return report
        changed, coding = self._behaviour.sent(report), self._computer.coding
        return changed if changed is report or coding is None else coding.again(changed, task)

    def content(self, version: int, model: State, memory: State) -> bool:
        """Return whether the client takes part with this model: whether it meets its requirement, where that matters."""
        opting, personal = self._computer.experiment.population.opting, self._computer.experiment.algorithm.personal
        if opting is None or version < opting.mandatory_rounds:
            return True
        params, _ = self._computer.received(model)
        if personal is not None:
            params = personal.serving(params, {name: value[None] for name, value in memory.items()})
        clients = self._computer.clients(self._row, self._row)
        required = self._required(self._row)
        assert required is not None
        loss, accuracy = (value.cpu().numpy() for value in full_scores(clients, params))
        return bool(required.gap(loss[0], accuracy[0], required.train[self._row]) < 0)

    def _required(self, client: int) -> BoundRequirement | None:
        """Return what the client requires of a model, found out once; None where nobody asks."""
        computer = self._computer
        if self._requirement is None and computer.judges:
            requirement = computer.experiment.population.requirement or WarmUp()
            rule, solo = requirement.solo(computer.experiment.algorithm.local), None
            if rule is not None:
                task, clients = (
                    Task(computer.objective.initial, 0, computer.experiment.seed),
                    self._computer.clients(client, self._row),
                )
                tuned_params = tuned(rule, task, clients, "own models").params
                solo = self._scores("train", clients, tuned_params)
                if self._lacks_test_examples() is None:
                    assert computer.test is not None
                    solo |= self._scores("test", replace(clients, shards=computer.test), tuned_params)
            num = computer.shards.num_clients if rule is None else 1
            bound = requirement.bind(num, solo)
            assert bound is not None
            index = self._row if rule is None else 0
            own_test = None if bound.test is None else self._in_row(bound.test[index])
            own_solo = None if bound.solo_accuracy is None else self._in_row(bound.solo_accuracy[index])
            self._requirement = BoundRequirement(bound.measure, self._in_row(bound.train[index]), own_test, own_solo)
        return self._requirement

    def _in_row(self, value: float) -> np.ndarray:
        """Return a number where whoever asks looks for it: by the client's row."""
        row = np.full(self._row + 1, np.nan)
        row[self._row] = value
        return row

    @staticmethod
    def _scores(split: str, clients: Clients, params: torch.Tensor) -> dict[str, np.ndarray]:
        """Return how well a model of a client's own does; one that has diverged is worse than any other."""
        loss, accuracy = (value.cpu().numpy() for value in full_scores(clients, params))
        return {f"{split}_loss": np.where(np.isfinite(loss), loss, _WORST), f"{split}_accuracy": accuracy}


def phase_message(side: ClientSide, task: Assignment, memory: State) -> tuple[bytes, State] | None:
    """Do the task of an extra phase: the body, and what is remembered; None where the client drops out."""
    try:
        told = {name: value[0] for name, value in task.tensors().items()}
    except WireError as error:
        side.drop_out(str(error))
        return None
    done = side.answer(task.phase, task.version, told, memory)
    return None if done is None else (encode(done[0]), done[1])


def _specs(inputs: Mapping[str, tuple[str, Sequence[int], str]]) -> Manifest:
    """Return the types and shapes of what a client alone is told."""
    return {name: Spec(dtype, tuple(shape)) for name, (dtype, shape, _) in inputs.items()}
