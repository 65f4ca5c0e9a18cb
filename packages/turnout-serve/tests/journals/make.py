"""Make the first two journals of this folder. It has run with the version whose journals they are, and is here to say how.

Each has entries of every kind that the version wrote. Their folders were zipped. `test_old_journals.py` replays them.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from turnout.evaluation.queries import Question
from turnout_serve.cli.deployed import experiment_of
from turnout_serve.cli.serving import note
from turnout_serve.client.calls import Call
from turnout_serve.server.enrollment import hashed
from turnout_serve.server.journal.events import Event
from turnout_serve.server.leases import Leases
from turnout_serve.server.run.served_experiment import ServedExperiment

from ..world import World

HERE = Path(__file__).parent
COMMON = [
    "data.name=digits",
    "data.num_clients=5",
    "model=logistic",
    "data.classes=10",
    "local.lr=0.1",
    "local.steps=2",
]
KINDS = {
    "deadline": ["algorithm=fedau", "pace.name=rounds", "pace.deadline=30.0", "evaluate_share=1.0", "evaluate_every=2"],
    "buffered": ["algorithm=fedbuff", "pace.name=buffered", "pace.buffer_size=2"],
}


EVERY = {"enrol", "codes", "name", "join", "leave", "start", "restart", "report", "fail", "timer", "survey"} | {
    "ban",
    "unban",
    "remove",
}


def made(name: str, homes: Path) -> None:
    """Make the journal of a run: its clients come, go, fail and are too late, and its administrator does all there is."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    settings = [*COMMON, *KINDS[name], "rounds=4"]
    experiment, _ = experiment_of(None, settings)
    declared, _ = experiment_of(None, [*settings, "data.inputs=64"], loads=False)
    deployed = World(
        experiment, folder, served=declared, homes=homes, min_clients=3, leases=Leases(heartbeat=1e6, grace=1e6)
    )
    administer = deployed.host.administer
    deployed.host.service.writer.put(Event("codes", data={"add": [hashed("first"), hashed("second")]}))
    deployed.host.service.writer.put(Event("codes", data={"withdraw": hashed("second")}))
    administer("POST", "clients/0", change="name", text="north")
    deployed.homes.pop()
    first = deployed.homes[0]
    for _ in range(100):
        if (held := deployed.host.driver.tasks.training_of(0)) is not None:
            break
        for home in deployed.homes:
            home.step(deployed.host)
        deployed.clock.now += 1.0
        deployed.host.pump()
    else:
        raise AssertionError("the first client got no further task")
    token = {"authorization": f"Bearer {first.state.token}"}
    deployed.host.call(Call("POST", f"/v1/tasks/{held.task}/fail", {"reason": "died"}, headers=token))
    deployed.host.call(deployed.homes[1].client.leave())
    for change in ("ban", "unban", "ban"):
        administer("POST", "clients/3", change=change, text="why")
    administer("POST", "clients/4", change="remove", text="asked to")
    deployed.homes = deployed.homes[:3]
    deployed.host.service.survey("query", 1.0, 5.0, Question("label_histogram"))
    deployed.host.service.survey("evaluate", 1.0, 5.0)
    deployed.round()
    deployed.clock.now += 40.0
    deployed.round()
    longer, described = experiment_of(None, [*settings, "data.inputs=64", "rounds=5"], loads=False)
    note(folder, None, longer, described)
    deployed.setting = ServedExperiment.of(longer).setting
    deployed.restart()
    deployed.homes = [home.reborn() if home.over else home for home in deployed.homes]
    deployed.run()
    deployed.host.service.writer.stop()
    assert deployed.host.driver.version == 5
    assert {entry.kind for entry in deployed.host.store.entries()} == EVERY
    deployed.close()


for name in sys.argv[1:] or KINDS:
    with tempfile.TemporaryDirectory() as homes:
        made(name, Path(homes))
