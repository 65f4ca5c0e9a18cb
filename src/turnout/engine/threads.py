"""Distribute the clients of a cohort over threads with one processor each, without barriers before the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np
import torch

from turnout.engine.hardware import num_processors

Item = TypeVar("Item")
Value = TypeVar("Value")

_LEAST = 1_000_000  # multiplications of a part; starting a part takes as long as a tenth of them


class ClientThreads:
    """A pool of threads for parts of a cohort, at most as many as torch may use and as there are processors.

    Operations of torch release Python's lock while they compute, so the threads share one process, its data and its
    traces. Each thread computes on one processor, because threads that share an operation wait for each other at its
    end. Results do not depend on the number of threads.

    Args:
        num_threads: number of threads, at most the processors of this process; None is `torch.get_num_threads()`.
    """

    def __init__(self, num_threads: int | None = None) -> None:
        most = torch.get_num_threads() if num_threads is None else num_threads
        self.num_threads = max(1, min(most, num_processors()))
        self._pool: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._later: list[Callable[[], object]] = []

    @property
    def is_split(self) -> bool:
        """True if a call of `map` from this thread uses several threads."""
        return self.num_threads > 1 and not getattr(self._local, "at_work", False)

    def map(self, function: Callable[[Item], Value], items: Iterable[Item]) -> Iterator[Value]:
        """Yield the function's value for each item, in order; a few items are computed ahead.

        Calls from one of the threads run sequentially.
        """
        if not self.is_split:
            yield from map(function, items)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_threads, "clients", initializer=partial(_start, self._local))
            # Restores the default of new threads, which `_start` changes.
            torch.set_num_threads(torch.get_num_threads())
        rest = iter(items)
        coming = [self._pool.submit(function, item) for item in islice(rest, 2 * self.num_threads)]
        while coming:
            value = coming.pop(0).result()
            coming += [self._pool.submit(function, item) for item in islice(rest, 1)]
            yield value

        while self._later:
            self._later.pop()()

    @contextmanager
    def one_processor_each(self) -> Iterator[None]:
        """Limit the operations of this thread to one processor, too, if there are other threads.

        OpenMP's threads spin for a while after each shared operation, on processors that the clients' threads need.
        """
        before = torch.get_num_threads()
        if self.num_threads == 1 or before == 1:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def when_idle(self, function: Callable[[], object]) -> None:
        """Call a function while no thread of the pool computes: at once, or at the end of the present `map`."""
        if getattr(self._local, "at_work", False):
            self._later.append(function)
        else:
            function()

    def parts(self, num_steps: np.ndarray, products: int, single: bool) -> list[slice]:
        """Split rows into parts with about the same number of steps.

        Args:
            num_steps: number of steps of each row, descending, ``[B]``.
            products: approximate number of multiplications in a step of one row.
            single: whether to make every row its own part.
        """
        if single:
            return [slice(i, i + 1) for i in range(len(num_steps))]
        done = np.cumsum(num_steps)
        total = int(done[-1]) if len(done) else 0
        number = min(self.num_threads, len(num_steps), total * products // _LEAST) if self.is_split else 1
        if number <= 1:
            return [slice(0, len(num_steps))]
        ends = np.unique([0, *np.searchsorted(done, total * np.arange(1, number) / number) + 1, len(num_steps)])
        return [slice(int(low), int(high)) for low, high in pairwise(ends)]


def _start(local: threading.local) -> None:
    """Initialize a thread. It receives the local data and not the pool, which the threads would keep alive."""
    local.at_work = True
    torch.get_num_threads()  # makes torch set its default now; later, that would override the next line
    torch.set_num_threads(1)
