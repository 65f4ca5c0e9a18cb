"""Save and load evaluations by clients of a server, one file each, and their figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.evaluation.sums import ClientSums, TotalSums
from turnout.record import contents, storage
from turnout.record.contents import Contents, Whole
from turnout.record.schema import ANSWERED, EVALUATION_COLUMNS
from turnout.record.tables import array_of, build, damaged, read, write

FOLDER = "evaluations"
"""The folder of evaluations in the folder of a run."""

_OF_SUMS = ("epsilon", "unopened")

_NAME = re.compile(r"[0-9]{8}\.parquet")


class _Form(Contents):
    """The form of the sums of an evaluation."""

    groups: tuple[tuple[Whole, ...], ...]
    metric: Literal["accuracy", "rmse"]
    personal: bool


class _Evaluation(Contents):
    """The metadata in the file of an evaluation."""

    version: Whole
    asked: Whole
    answered: Whole | None = None
    form: _Form
    total: dict[str, Any] | None = None
    least: float = 1.0
    epsilon: float | None = None
    unopened: str | None = None


class Evaluations:
    """The evaluations of a run by clients, in the order of requests.

    Attributes:
        by_round: the figures of the last evaluation of each version that clients have answered, by their columns in the
            table of rounds.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, Any]] = {}
        self._answers: dict[int, ClientSums | TotalSums] = {}
        self.by_round: dict[int, dict[str, float]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, number: int, facts: Mapping[str, Any], answers: ClientSums | TotalSums) -> dict[str, float]:
        """Add an evaluation and return its figures.

        Args:
            number: the number of the evaluation.
            facts: its ``version``, the numbers of clients that were ``asked`` and that ``answered`` (by default those in
                `answers`), and of those that are ``lost``, by reason; for a secure or noised sum, also ``epsilon``, and the
                reason why it is ``unopened``.
            answers: the answers.
        """
        number_asked, figures = facts["asked"], answers.figures()
        answered = facts.get("answered", len(answers.clients))  # also of answers that are withheld
        row = {
            "evaluation": number,
            "version": facts["version"],
            "asked": number_asked,
            "answered": answered,
        }
        row |= {"examples": answers.num_examples} | {name: facts[name] for name in _OF_SUMS if name in facts}
        row |= {f"lost_{reason.replace(' ', '_')}": count for reason, count in facts["lost"].items()}
        self._rows[number], self._answers[number] = row | figures, answers
        of_round = {name: value for name, value in figures.items() if not name.startswith("client_test_")}
        of_round |= dict(zip(ANSWERED, (float(number_asked), float(answered)), strict=True))
        if len(answers.clients) or facts["version"] not in self.by_round:  # without an answer, earlier figures stay
            self.by_round[facts["version"]] = of_round
        return of_round

    @property
    def table(self) -> pa.Table:
        """One row for each evaluation: `EVALUATION_COLUMNS`, then figures by name."""
        rows = [self._rows[number] for number in sorted(self._rows)]
        names = dict.fromkeys(name for row in rows for name in row if name != "unopened")  # which is text
        return build({name: [row.get(name) for row in rows] for name in names}, EVALUATION_COLUMNS)

    @property
    def columns(self) -> list[str]:
        """The columns of the table of rounds that evaluations fill."""
        return list(dict.fromkeys(name for figures in self.by_round.values() for name in figures))

    def filled(self, table: pa.Table) -> pa.Table:
        """Return a table of rounds, whose missing values are filled with the figures of evaluations."""
        rounds = table["round"].to_pylist()
        if self.by_round.keys().isdisjoint(rounds):
            return table
        for name in self.columns:
            values = array_of([self.by_round.get(number, {}).get(name) for number in rounds], pa.float64())
            if name in table.column_names:
                recorded = table[name].cast(pa.float64())
                table = table.set_column(table.column_names.index(name), name, pc.fill_null(recorded, values))
            else:
                table = table.append_column(name, values)
        return table

    def by_client(self, num_clients: int) -> dict[str, np.ndarray]:
        """Return the last answer of each client, float64 ``[N]`` by name; NaN for clients without one."""
        columns: dict[str, np.ndarray] = {}
        for number in sorted(self._answers):
            answers = self._answers[number]
            for name, values in answers.by_client().items():
                columns.setdefault(name, np.full(num_clients, np.nan))[answers.clients] = values
        return columns

    @property
    def last(self) -> dict[str, Any] | None:
        """The row of the evaluation that ended last; None before the first."""
        return next(reversed(self._rows.values()), None)

    def row(self, number: int) -> dict[str, Any] | None:
        """Return the row of an evaluation by its number; None if it has not ended."""
        return self._rows.get(number)

    def answers(self, number: int) -> ClientSums | TotalSums:
        """Return the answers of an evaluation by its number: of each client, or their sum."""
        return self._answers[number]

    def save(
        self, folder: Path, number: int, facts: Mapping[str, Any], answers: ClientSums | TotalSums
    ) -> dict[str, float]:
        """Add an evaluation and write it to a file; return its figures.

        Raises:
            CheckpointError: if it cannot be written.
        """
        flat: dict[str, Any] = {"client": answers.clients, "seen": answers.seen.astype(np.int64)}
        known: dict[str, Any] = {**facts, "form": answers.facts}
        if isinstance(answers, TotalSums):
            known |= {"total": {name: value.tolist() for name, value in answers.total.items()}, "least": answers.least}
        for name, values in answers.sums.items() if isinstance(answers, ClientSums) else ():
            flat |= {name: values} if values.ndim == 1 else {f"{name}.{i}": column for i, column in enumerate(values.T)}
        table = build(flat, {"client": pa.int64(), "seen": pa.int64()})
        table = table.replace_schema_metadata({"evaluation": json.dumps(known, sort_keys=True)})
        storage.save(folder / FOLDER, {f"{number:08d}.parquet": lambda path: write(path, [table], table.schema)})
        return self.add(number, facts, answers)

    @classmethod
    def load(cls, folder: Path, last: int | None = None) -> Evaluations:
        """Read the evaluations of a run up to a version.

        Raises:
            CheckpointError: if a file is damaged.
        """
        evaluations, files = cls(), folder / FOLDER
        for path in sorted(files.iterdir()) if files.is_dir() else ():
            if not _NAME.fullmatch(path.name):
                continue
            table = read(path, {"client": pa.int64(), "seen": pa.int64()})
            try:
                facts = contents.parse((table.schema.metadata or {}).get(b"evaluation", b""))
            except ValueError as error:
                raise damaged(path, str(error)) from error
            contents.check(path, _Evaluation, facts)
            form, total, least = facts.pop("form"), facts.pop("total", None), facts.pop("least", 1.0)
            if last is None or facts["version"] <= last:
                with contents.restoring(path, "its sums"):
                    clients, seen = table["client"].to_numpy(), table["seen"].to_numpy().astype(bool)
                    if total is None:
                        answers = ClientSums(clients, seen, _sums(table), form)
                    else:
                        sums = {name: np.array(value, dtype=np.float64) for name, value in total.items()}
                        answers = TotalSums(clients, seen, sums, form, least)
                    evaluations.add(int(path.stem), facts, answers)
                    answers.by_client()
        return evaluations


def _sums(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the sums of each client that `Evaluations.save` wrote."""
    sums = {name: table[name].to_numpy() for name in table.column_names[2:]}
    for name in ("group_examples", "group_score"):
        columns = [column for column in sums if re.fullmatch(rf"{name}\.\d+", column)]
        if columns:
            columns.sort(key=lambda column: int(column.rpartition(".")[2]))
            sums[name] = np.stack([sums.pop(column) for column in columns], axis=1)
    return sums
