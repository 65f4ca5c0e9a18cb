"""The files of a server that a report of a client passes through."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.laws.recipes import DATA

import turnout_serve
from turnout import Experiment, Population, fedavg
from turnout.models import Mlp
from turnout.population.availability import Everyone

from .world import LOCAL

SERVER = Path(turnout_serve.__file__).parent / "server"
PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


@contextmanager
def entered():
    """The files of the server whose functions are called in this thread, which is all threads of a `World`."""
    files = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SERVER):
            files.add(path.relative_to(SERVER).as_posix())

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)


def test_report_passes_through_few_documented_files(world):
    """In the middle of a round."""
    deployed = world(Experiment(DATA, Mlp(hidden=(4,)), fedavg(LOCAL), Population(Everyone()), rounds=1))
    for home in 2 * deployed.homes:
        if not home.has_report:
            home.train(deployed.host)
    with entered() as files:
        assert deployed.host.call(deployed.homes[3].action).status == 201
    assert deployed.host.driver.version == 0
    assert len(files) <= 24, files
    _, _, section = PAGE.read_text("utf-8").partition("## The path of a report")
    section, _, _ = section.partition("\n## ")
    assert set(re.findall(r"`([\w/]+\.py)`", section)) == files
