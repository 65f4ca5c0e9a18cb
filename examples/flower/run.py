"""FedAU of turnout against Flower's FedAvg, among clients that come and go, in Flower's simulation.

Run it by ``make demo-flower``, or ``python examples/flower/run.py [ROUNDS [SEEDS]]`` with the extras ``flower`` and
``digits`` and with ``flwr[simulation]``.
"""

# pyright: reportMissingImports=false

import os
import sys
import tempfile
import time

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import digits
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import turnout as to
from turnout_flower import Rule

ROUNDS, SEEDS = [*map(int, sys.argv[1:]), *(80, 3)[len(sys.argv) - 1 :]]


class ComeAndGo(Grid):
    """A grid whose nodes come and go, by draws from round to round.

    Nodes that hold the digits 5 to 9 are there in 15% of the rounds, the others in 85%; who is there stays for five rounds on
    average. A node that leaves while it works does not send its reply.
    """

    def __init__(self, grid, seed):
        self._grid, self._round = grid, 0
        while len(list(grid.get_node_ids())) < digits.NUM_CLIENTS:
            time.sleep(0.1)
        question = [Message(RecordDict(), node, MessageType.QUERY) for node in sorted(grid.get_node_ids())]
        answers = grid.send_and_receive(question)
        self._partition = {each.metadata.src_node_id: each.content["metrics"]["partition"] for each in answers}
        share = np.array([0.15 if client in digits.RARE else 0.85 for client in range(digits.NUM_CLIENTS)])
        generator, there = np.random.default_rng(seed), np.zeros((10_000, digits.NUM_CLIENTS), dtype=bool)
        there[0] = generator.random(len(share)) < share
        for now, before in zip(there[1:], there, strict=False):
            stays, comes = (
                1 - (1 - share) / 5 / (1 - share.min()),
                share / (1 - share) * (1 - share) / 5 / (1 - share.min()),
            )
            now[:] = generator.random(len(share)) < np.where(before, stays, comes)
        self._there = there

    @property
    def run(self):
        """The run."""
        return self._grid.run

    def set_run(self, run):
        """Set the run."""
        self._grid.set_run(run)

    def create_message(self, *args, **options):
        """Make a message."""
        return self._grid.create_message(*args, **options)

    def get_node_ids(self):
        """Return the nodes that are there."""
        return [node for node in self._grid.get_node_ids() if self._there[self._round, self._partition[node]]]

    def push_messages(self, messages):
        """Send messages; those of a new round have nodes come and go."""
        messages = list(messages)
        self._round = max([self._round, *(each.content["config"]["server-round"] for each in messages)])
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids):
        """Return replies."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages, *, timeout=None):
        """Send messages, and return the replies of those who are still there."""
        del timeout
        ids, replies = set(self.push_messages(messages)), []
        there = set(self.get_node_ids())
        while ids:
            for reply in self.pull_messages(list(ids)):
                ids.discard(reply.metadata.reply_to_message_id)
                replies.append(reply)
            time.sleep(0.05)
        return [reply for reply in replies if reply.metadata.src_node_id in there]


def score(version, arrays):
    """Return the accuracy on test examples of all digits, and of those that the rare clients hold."""
    del version
    model = digits.net()
    model.load_state_dict(arrays.to_torch_state_dict())
    images, labels = digits.partition(-1)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).double()
    return MetricRecord({"accuracy": right.mean().item(), "rare": right[labels >= 5].mean().item()})


def train(strategy, seed):
    """Train in Flower's simulation, and return the mean accuracies of the last ten rounds."""
    found, server = {}, ServerApp()

    @server.main()
    def main(grid, _):
        torch.manual_seed(seed)
        result = strategy.start(
            grid=ComeAndGo(grid, seed),
            initial_arrays=ArrayRecord(digits.net().state_dict()),
            num_rounds=ROUNDS,
            train_config=ConfigRecord({"lr": 0.3}),
            evaluate_fn=score,
        )
        last = [result.evaluate_metrics_serverapp[version] for version in range(ROUNDS - 9, ROUNDS + 1)]
        found.update({name: float(np.mean([each[name] for each in last])) for name in ("accuracy", "rare")})

    run_simulation(server, digits.app, digits.NUM_CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
    return found


def main():
    """Compare."""
    table = {}
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            options = {"min_nodes": 1, "poll": 0.05}
            strategies = {
                "Flower FedAvg": FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
                "Rule(to.fedavg())": Rule(to.fedavg(), folder=f"{folder}/fedavg", **options),
                "Rule(to.fedau(cutoff=50))": Rule(to.fedau(cutoff=50), folder=f"{folder}/fedau", **options),
            }
            for name, strategy in strategies.items():
                table.setdefault(name, []).append(train(strategy, seed))
    print(f"{'accuracy, last 10 of ' + str(ROUNDS) + ' rounds':34s}{'all digits':>18s}{'rare digits':>18s}")
    for name, runs in table.items():
        cells = [
            (np.mean([run[key] for run in runs]), np.std([run[key] for run in runs])) for key in ("accuracy", "rare")
        ]
        print(f"{name:34s}" + "".join(f"{mean:11.3f} ± {spread:.3f}" for mean, spread in cells))


if __name__ == "__main__":
    main()
