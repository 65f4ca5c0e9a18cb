"""A naive asynchronous simulation: every event examines every client, and nothing is reused."""

import math

import numpy as np


def arrivals(speed, num_clients: int, buffer_size: int, until: float) -> list[tuple[float, int, int, int]]:
    """Return (time, client, trained version, version at the step) of every report of continuous clients.

    Reports of a client do not depend on the server then, so all of them can be sorted at once.
    """
    ends = []
    for client in range(num_clients):
        numbers = np.arange(20_000)
        ends.append(np.cumsum(speed.seconds(np.full(len(numbers), client), numbers).total))
        assert ends[-1][-1] > until
    time = np.concatenate(ends)
    client = np.repeat(np.arange(num_clients), 20_000)
    order = np.argsort(time, kind="stable")
    order = order[time[order] <= until]
    time, client = time[order], client[order]
    at_step = np.arange(len(time)) // buffer_size
    known = dict.fromkeys(range(num_clients), 0)
    rows = []
    for i in range(len(time)):
        c = int(client[i])
        rows.append((float(time[i]), c, known[c], int(at_step[i])))
        known[c] = (i + 1) // buffer_size  # it pulls the model after the step that its own report may have caused
    full = len(rows) // buffer_size * buffer_size
    return rows[:full]


def protocol(speed, dropout, num_clients, buffer_size, waits, max_staleness, steps):
    """Used reports (arrival, client, version trained, version at the step) and the ends of the others (time, client, why)."""
    now, version = 0.0, 0
    numbers, trained, buffer = [-1] * num_clients, [0] * num_clients, []
    end, dies = [0.0] * num_clients, [False] * num_clients
    used, dropped = [], []

    def pull(c):
        numbers[c] += 1
        one, number = np.array([c]), np.array([numbers[c]])
        took = speed.seconds(one, number).total
        death = math.inf if dropout is None else float(dropout.deaths(one, number, took)[0])
        trained[c], dies[c], end[c] = version, death < took[0], now + min(float(took[0]), death)

    for c in range(num_clients):
        pull(c)
    while version < steps:
        c = min(range(num_clients), key=lambda c: end[c])
        now = end[c]
        stale = max_staleness is not None and version - trained[c] > max_staleness
        if dies[c] or stale:
            dropped.append((now, c, "died" if dies[c] else "stale"))
            pull(c)
            continue
        pause = waits == "always" or (waits == "if_current" and trained[c] == version)
        buffer.append((now, c, trained[c]))
        end[c] = math.inf
        if len(buffer) == buffer_size:
            used += [(*report, version) for report in buffer]
            version, buffer = version + 1, []
            for other in range(num_clients):
                if end[other] == math.inf:
                    pull(other)
        elif not pause:
            pull(c)
    return used, dropped
