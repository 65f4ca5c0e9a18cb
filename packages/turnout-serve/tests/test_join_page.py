"""The page in which a browser becomes a client, in Chromium."""

import pytest
import torch

from turnout import Experiment, Sgd, fedau
from turnout.data.federated import FederatedData
from turnout.data.shards import Shards
from turnout.models import Mlp
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server

from .browser import CHROMIUM, Page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")


def digits():
    """Images of 8 x 8 of two classes: a stroke on the left, and one on the right."""
    x = torch.zeros(8, 8, 8)
    x[:4, :, 2] = 1.0
    x[4:, 2, :] = 1.0
    y = torch.tensor([0] * 4 + [1] * 4)
    return FederatedData("strokes", Shards(x.view(8, 64), y, torch.tensor([0, 4, 8]).numpy()), 2)


def test_browser_collects_examples_trains_and_reports(folder, tmp_path):
    """Strokes drawn by hand become examples; a page that is loaded again is the same client."""
    experiment = Experiment(digits(), Mlp(hidden=(8,)), fedau(Sgd(lr=0.1, batch_size=2)), rounds=40)
    made = Server(experiment, folder, None, Options(port=0, min_clients=1, rate=0, page=True))
    with made.listening() as url:
        page = Page(tmp_path, f"{url}/join")
        try:
            page.wait("document.querySelectorAll('#labels button').length === 2")
            assert page.run("document.documentElement.scrollWidth <= innerWidth")
            box = page.run("(() => { const b = pad.getBoundingClientRect(); return [b.x, b.y, b.width]; })()")
            for label, (dx, dy) in ((0, (0.5, 0.9)), (1, (0.9, 0.5))):  # down, and to the right
                for start in (0.1, 0.3):
                    x, y, width = box
                    at = [x + width * (start if dx > dy else 0.5), y + width * (0.5 if dx > dy else start)]
                    page.mouse("mousePressed", *at)
                    page.mouse("mouseMoved", x + width * dx, y + width * dy)
                    page.mouse("mouseReleased", x + width * dx, y + width * dy)
                    page.run(f"document.querySelectorAll('#labels button')[{label}].click()")
            assert page.run("document.getElementById('count').textContent") == "4"
            drawn = page.run("JSON.parse(localStorage.getItem('turnout-examples'))")
            assert drawn["targets"] == [0, 0, 1, 1]
            stroke = torch.tensor(drawn["inputs"][0]).view(8, 8)  # down the middle, as long as the image
            assert stroke[:, 3:5].sum(dim=1).min() > 0.6
            assert stroke[:, [0, 1, 6, 7]].max() < 0.1
            assert stroke.max() <= 1.0
            page.run("document.getElementById('take-part').click()")
            page.wait("Number(document.getElementById('taken').textContent) >= 3")
            page.run("location.reload()")
            page.wait("Number(document.getElementById('count').textContent) === 4")
            page.wait("!document.getElementById('take-part').disabled")
            page.run("document.getElementById('take-part').click()")
            page.wait("document.getElementById('state').textContent.startsWith('done: the run is over')")
            page.mouse("mousePressed", box[0] + box[2] * 0.5, box[1] + 5)
            page.mouse("mouseMoved", box[0] + box[2] * 0.5, box[1] + box[2] * 0.9)
            page.mouse("mouseReleased", box[0] + box[2] * 0.5, box[1] + box[2] * 0.9)
            page.wait("document.getElementById('guess').textContent === 'the model says 0'")
        finally:
            page.close()
        assert made.service.num_clients == 1
        assert made.driver.version == experiment.rounds
    assert made.driver.roster.names == {0: "browser"}


def test_page_gives_the_reason_if_browsers_cannot_join(folder, tmp_path):
    experiment = Experiment(digits(), Mlp(hidden=(8,), dropout=0.5), fedau(Sgd(lr=0.1)), rounds=2)
    made = Server(experiment, folder, None, Options(port=0, rate=0, page=True))
    with made.listening() as url:
        page = Page(tmp_path, f"{url}/join")
        try:
            page.wait("document.getElementById('state').textContent.includes('browsers cannot take part in this run')")
            assert page.run("document.getElementById('take-part').disabled")
        finally:
            page.close()
