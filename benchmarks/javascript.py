"""Compare the accuracy of 50 Python clients with that of 25 JavaScript and 25 Python clients, over real sockets.

``python benchmarks/javascript.py [SEEDS]`` trains an MLP on the digits by FedAvg with all clients in each round: with Python
clients alone, with half of them in Node that draw the specified minibatches, and with half that draw their own.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import turnout as to
from turnout.experiment import Experiment
from turnout_serve.client.computer import Computer
from turnout_serve.client.join import Connection
from turnout_serve.client.swarm import Swarm
from turnout_serve.server.http.status import status
from turnout_serve.server.leases import Leases
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server

N, ROUNDS = 50, 60
HERE = Path(__file__).parent
MODULE = HERE.parent / "clients/javascript/turnout.js"


def experiment_of(seed: int) -> Experiment:
    """Return the federation."""
    data = to.data.digits().split(to.partition.Dirichlet(alpha=0.3, min_examples=5), num_clients=N, seed=seed)
    local = to.Sgd(lr=0.1, steps=5, batch_size=16)
    algorithm = to.fedavg(local)
    return Experiment(
        data,
        to.models.Mlp(hidden=(32,)),
        algorithm,
        to.Population(to.availability.Everyone()),
        rounds=ROUNDS,
        seed=seed,
    )


def accuracy(experiment: Experiment, in_node: int, sampling: str, folder: Path) -> tuple[float, int]:
    """Return the final test accuracy in percent of a federation, and the number of reports from Node."""
    options = Options(port=0, min_clients=N, rate=0, leases=Leases(heartbeat=60, grace=60), linger=5)
    server = Server(replace(experiment, evaluate_every=ROUNDS), folder, {}, options)
    train, in_python = experiment.data.train, N - in_node
    parts = [slice(*train.offsets[row : row + 2]) for row in range(in_python, N)]
    data = [{"inputs": train.x[part].tolist(), "targets": train.y[part].tolist()} for part in parts]
    (folder / "examples.json").write_text(json.dumps(data))
    with server.listening() as url:
        swarm = Swarm(Computer(experiment), Connection(url), in_python)
        thread = threading.Thread(target=swarm.run)
        thread.start()
        while server.service.num_clients < in_python:
            time.sleep(0.01)
        taken = 0
        if in_node:
            command = [
                "node",
                str(HERE / "javascript.mjs"),
                MODULE.as_uri(),
                url,
                str(folder / "examples.json"),
                sampling,
            ]
            taken = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout)
        thread.join()
        curve = status(server.service, 0, {}).fields()["curves"]["test_accuracy"]
    return 100.0 * curve[-1][1], taken


def main() -> None:
    """Print a table."""
    print("seed  Python  specified  free  (test accuracy, %; in the last two, half of the clients in Node)")
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        experiment, found = experiment_of(seed), list[float]()
        for in_node, sampling in ((0, ""), (N // 2, "specified"), (N // 2, "free")):
            with tempfile.TemporaryDirectory() as folder:
                value, taken = accuracy(experiment, in_node, sampling, Path(folder))
            assert taken == in_node * ROUNDS, taken
            found.append(value)
        print(f"{seed:4}  {found[0]:6.2f}  {found[1]:9.2f}  {found[2]:4.2f}", flush=True)


if __name__ == "__main__":
    main()
