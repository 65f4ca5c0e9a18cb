"""A ClientApp as Flower's PyTorch quickstart has it: nothing in it knows of turnout."""

# pyright: reportMissingImports=false

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from torch import nn

NUM_CLIENTS, RARE = 20, range(10, 20)  # clients 10 to 19 hold the digits 5 to 9, and are there rarely

app = ClientApp()


def net():
    """Return the model."""
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def partition(client):
    """Return the examples of a client; those of none (-1) are for the test."""
    pixels, targets = map(np.asarray, load_digits(return_X_y=True))
    images, labels = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(targets)
    order = torch.tensor(np.random.default_rng(0).permutation(len(labels)))
    test, train = order[:360], order[360:]
    if client < 0:
        return images[test], labels[test]
    half = train[(labels[train] >= 5) == (client in RARE)]
    rows = half[client % 10 :: 10]
    return images[rows], labels[rows]


@app.train()
def train(message: Message, context: Context):
    """Train for one epoch."""
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = partition(int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"])
    losses = []
    for rows in torch.randperm(len(labels)).split(16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    metrics = MetricRecord({"train_loss": sum(losses) / len(losses), "num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context):
    """Say how good the model is on the examples of this client."""
    model = net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    images, labels = partition(int(context.node_config["partition-id"]))
    with torch.no_grad():
        outputs = model(images)
    loss = nn.functional.cross_entropy(outputs, labels).item()
    accuracy = (outputs.argmax(1) == labels).double().mean().item()
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query()
def query(message: Message, context: Context):
    """Say which partition this node has, from which the demo draws when it is there."""
    config = MetricRecord({"partition": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": config}), reply_to=message)
