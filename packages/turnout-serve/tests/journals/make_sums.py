"""Make the five journals of this folder with sums: clients come, go, lie and are late in each phase.

A seeded generator decides which client leaves, returns, is silent, lies or is banned, when an administrator asks, and when
the server restarts. Keys and noise are random, so a second run makes another journal. `test_old_journals.py` replays them.
In `packages/turnout-serve`, with the root of the repository in PYTHONPATH: `python -m tests.journals.make_sums`.
"""

import random
import shutil
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.tiny import classification

from turnout.core.checks import ConfigurationError
from turnout.data.federated import FederatedData, Shards
from turnout.evaluation.queries import Question
from turnout.protocol.survey import DECLINES, FIRST_TASK
from turnout_serve.cli.deployed import experiment_of
from turnout_serve.cli.serving import note
from turnout_serve.client.calls import Call, JoinError
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.journal.entries import Entry
from turnout_serve.server.journal.events import Event
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.served_experiment import ServedExperiment
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.format import decode, encode, read_manifest, repr_digest

from ..world import ALLOWS, REPEATS, World

HERE = Path(__file__).parent
SIZES = (20, 24, 28, 32, 36, 40)
COMMON = ["data.name=declared", "data.inputs=4", "data.classes=3", f"data.num_clients={len(SIZES)}"]
COMMON += ["model=logistic", "local.lr=0.1", "local.steps=1", "evaluate_share=0.9", "evaluate_every=2"]
SECURE = [
    "aggregation=secure_sum",
    "aggregation.largest=64.0",
    "aggregation.min_clients=2",
    "aggregation.threshold=0.6",
]
PRIVATE = ["aggregation=private_sum", "aggregation.norm=0.3", "aggregation.noise_multiplier=2.0"]
PRIVATE += [
    "aggregation.answers.noise_multiplier=4.0",
    "aggregation.answers.most=12",
    "aggregation.answers.examples=30",
]
UNDER_MASKS = [
    "aggregation.secure.fraction_bits=16",
    "aggregation.secure.largest=1.0",
    "aggregation.secure.min_clients=2",
]
KINDS = {
    "masked": ["algorithm=fedau", "pace.name=rounds", "pace.deadline=30.0", *SECURE],
    "groups": ["algorithm=fedbuff", "pace.name=buffered_groups", "pace.group_size=3", "pace.buffer_size=2", *SECURE],
    "noised": ["algorithm=fedau", "pace.name=rounds", *PRIVATE],
    "private": ["algorithm=fedau", "pace.name=rounds", *PRIVATE, *UNDER_MASKS],
    "measured": ["algorithm=power_of_choice", "pace.name=rounds"],
}
SEEDS = {"masked": 6, "groups": 3, "noised": 3, "private": 6, "measured": 3}
OPTIONS = {"min_clients": 3, "leases": Leases(heartbeat=1e6, grace=1e6, task_deadline=20.0), "checkpoint_every": 1e9}
EVERY = {
    "start",
    "restart",
    "enrol",
    "join",
    "leave",
    "leave, late",
    "report",
    "report, of a survey",
    "survey",
    "timer",
}
EVERY |= {"timer, of a survey", "fail", "fail, refused", "fail, answered", "fail, of a survey"}
EVERY |= {f"fail, {reason}, of a survey" for reason in (*DECLINES, "refused")}
EVERY |= {"name", "ban", "unban", "remove", "codes"}
"""The kinds of entries, as by `kind_of`, of which each is in one of the journals."""
QUESTIONS = (
    Question("label_histogram"),
    Question("mean", column=0, bound=2.0),
    Question("mean", of="age", bound=2.0),
    None,
)


def at_home() -> FederatedData:
    """Return the examples of the clients, the last of whom has none to test with."""
    train, held = classification(SIZES, features=4, classes=3), [4, 5, 6, 7, 8, 0]
    assert train.test is not None
    test = Shards(train.test.x[: sum(held)], train.test.y[: sum(held)], np.concatenate([[0], np.cumsum(held)]))
    return FederatedData("at home", train.train, 3, client_test=test)


class Turmoil:
    """A run in which everything that can happen to clients happens."""

    def __init__(self, deployed: World, seed: int) -> None:
        self.deployed, self.random = deployed, random.Random(seed)
        self.saved: list[object] = []
        self.silent: set[int] = set()

    def run(self) -> None:
        """Let things happen until the run is over."""
        for number in range(600):
            self.turn()
            if number % 6 == 3:
                self.administer()
            if number % 5 == 4:
                self.restart()
            if self.deployed.host.driver.over:
                return
        raise AssertionError("the run does not end")

    def turn(self) -> None:
        """Let every client have a turn, or something happen to it."""
        for row, home in enumerate(self.deployed.homes):
            chance = self.random.random()
            if home.over is not None:
                if chance < 0.6 and "is over" not in str(home.over):
                    self.deployed.homes[row] = home.reborn()
            elif chance < 0.015:
                home.over = "its process ended"
                self.deployed.host.call(home.client.leave())
            elif chance < 0.025:
                self.gives_up(home)
            elif chance < 0.035:
                self.sends_garbage(home)
            elif chance < 0.06 and row == 3:
                self.lies(home)
            else:
                for _ in range(self.random.randrange(1, 9)):
                    if row not in self.silent and home.over is None:
                        self.steps(home)
        if self.random.random() < 0.05:
            self.silent = {self.random.randrange(len(SIZES))} if not self.silent else set()
        self.deployed.clock.now += self.random.choice([0.5, 1.0, 1.0, 8.0])
        self.deployed.host.pump()

    def steps(self, home) -> None:
        """Have a client do one thing; a banned one ends."""
        try:
            home.step(self.deployed.host)
        except JoinError as error:
            home.over = str(error)

    def asked(self, home, **more):
        """Return the task of a client, and the headers of its requests."""
        held = self.deployed.host.driver.task_of(home.state.client)
        return held, {"authorization": f"Bearer {home.state.token}", **more}

    def gives_up(self, home) -> None:
        """Have a client give its task up for one of the reasons that there are."""
        held, headers = self.asked(home)
        reason = self.random.choice(["died", "no test examples", "refused", "unknown", "answered", "similar group"])
        if held is not None:
            self.deployed.host.call(Call("POST", f"/v1/tasks/{held.task}/fail", {"reason": reason}, headers=headers))

    def sends_garbage(self, home) -> None:
        """Have a client send what is no report."""
        held, headers = self.asked(home, **{"repr-digest": repr_digest(hashed("garbage"))})
        if held is not None:
            self.deployed.host.call(Call("PUT", f"/v1/tasks/{held.task}/report", body=b"garbage", headers=headers))

    def lies(self, home) -> None:
        """Have a client open other shares than it was dealt, once."""
        do = home.client.trainer.do

        def lying(client, task, model, memory):
            found = do(client, task, model, memory)
            if found is None or task.phase != "open":
                return found
            home.client.trainer.do = do
            tensors = decode(found[0], read_manifest(found[0]))
            return encode({name: value * 0 + 1 for name, value in tensors.items()}), found[1]

        home.client.trainer.do = lying

    def administer(self) -> None:
        """Ask clients, and ban, name or remove one."""
        service, chance = self.deployed.host.service, self.random.random()
        client = self.random.randrange(service.num_clients)
        with suppress(Refused, ConfigurationError):
            if chance < 0.5:
                question, seconds = self.random.choice(QUESTIONS), self.random.choice([None, 5.0, 40.0])
                service.survey("query" if question else "evaluate", self.random.choice([0.6, 1.0]), seconds, question)
            elif chance < 0.6:
                self.deployed.host.administer("POST", f"clients/{client}", change="ban", text="why")
            elif chance < 0.8:
                for banned in list(self.deployed.host.driver.roster.bans):
                    self.deployed.host.administer("POST", f"clients/{banned}", change="unban")
            elif chance < 0.9:
                self.deployed.host.administer("POST", f"clients/{client}", change="name", text=f"north {client}")
        self.deployed.host.pump()

    def restart(self) -> None:
        """Restart the server; keep its checkpoint, if training tasks and tasks of an evaluation or query are open."""
        driver = self.deployed.host.driver
        phases = [
            task.phase for row in range(len(SIZES)) for task in [driver.tasks.training_of(row)] if task is not None
        ]
        surveys = [(each.order.phase, each.survey.request.phase) for each in driver.surveys.open.values()]
        if (
            len(self.saved) < 6
            and any(each.tasks for each in driver.surveys.open.values())
            and phases
            and (phases, surveys) not in self.saved
        ):
            self.deployed.host.service.writer.checkpoint()
            shutil.copytree(
                self.deployed.folder, self.deployed.folder.parent / str(len(self.saved)), ignore=only_checkpoint
            )
            self.saved.append((phases, surveys))
        self.deployed.restart()


def only_checkpoint(_: str, names: list[str]) -> list[str]:
    """Return what is not to be copied of a run's folder."""
    return [name for name in names if name != "checkpoint.safetensors"]


def made(name: str, work: Path) -> set[str]:
    """Make the journal of a run, and zip its folder; return the kinds of its entries."""
    folder = work / "run"
    declared, described = experiment_of(None, [*COMMON, *KINDS[name], "rounds=4"], loads=False)
    deployed = World(replace(declared, data=at_home()), folder, served=declared, homes=work / "homes", **OPTIONS)
    deployed.homes[0].allows = deployed.homes[1].allows = REPEATS
    deployed.homes[2].allows = ALLOWS[:1]
    deployed.host.service.writer.put(Event("codes", data={"add": [hashed("first"), hashed("second")]}))
    deployed.host.service.writer.put(Event("codes", data={"withdraw": hashed("second")}))
    turmoil = Turmoil(deployed, SEEDS[name])
    turmoil.run()
    declared, described = experiment_of(None, [*COMMON, *KINDS[name], "rounds=6"], loads=False)
    deployed.setting = ServedExperiment.of(declared, task_deadline=OPTIONS["leases"].task_deadline).setting
    deployed.restart()
    deployed.homes = [home.reborn() for home in deployed.homes]
    turmoil.run()
    for number in range(len(SIZES)):
        deployed.host.administer("POST", f"clients/{number}", change="remove", text="asked to")
    deployed.host.service.writer.checkpoint()
    note(folder, None, declared, described)
    print(name, deployed.host.driver.barred)
    kinds = {kind_of(entry) for entry in deployed.host.store.entries()}
    deployed.close()
    for number in range(len(turmoil.saved)):
        shutil.copytree(work / str(number), folder / "middle" / str(number))
    with zipfile.ZipFile(HERE / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            file.write(path, path.relative_to(folder))
    return kinds


def kind_of(entry: Entry) -> str:
    """Return the kind of an entry, with what distinguishes failures, departures and timers."""
    more = [entry.data["reason"]] if "reason" in entry.data else []
    more += ["refused"] if "refused" in entry.data else []
    more += ["of a survey"] if (entry.task or 0) >= FIRST_TASK or entry.data.get("timer", 0) < 0 else []
    return ", ".join([entry.kind, *more])


if __name__ == "__main__":
    found = set[str]()
    for name in KINDS:
        with tempfile.TemporaryDirectory() as work:
            found |= made(name, Path(work))
    assert found >= EVERY, EVERY - found
