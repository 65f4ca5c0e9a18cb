"""The book of open tasks: their order, and the outcomes of an entry."""

import time

from turnout.protocol.survey import FIRST_TASK
from turnout_serve.server.journal.entries import Effects, Outcome
from turnout_serve.server.run.task_book import TaskBook
from turnout_serve.wire.assignment import Assignment


def task(number):
    return Assignment(number, 0, "train", 0, "0" * 64, 1, 1.0)


def test_last_outcome_of_a_task_counts():
    book = TaskBook()
    for number in (3, FIRST_TASK, 4):
        book.add(0, task(number))
    assert [each.task for each in book.of_client(0)] == [FIRST_TASK, 3, 4]
    book.effects = Effects(1.0)
    book.end(Outcome(3, 0, "taken", "d"))
    book.end(Outcome(4, 0, "left"))
    book.end(Outcome(3, 0, "stale"))  # a step drops the report that the same entry has taken
    assert book.effects.outcomes == [Outcome(3, 0, "stale"), Outcome(4, 0, "left")]
    assert [each.task for each in book.of_client(0)] == [FIRST_TASK]
    book.end(Outcome(FIRST_TASK, 0, "late"))
    assert not book.clients()


def test_many_tasks_end_in_one_entry():
    """In a time that grows with their number alone."""
    book, number = TaskBook(), 50_000
    for client in range(number):
        book.add(client, task(client))
    begun = time.process_time()
    for client in range(number):
        book.end(Outcome(client, client, "late"))
    assert time.process_time() - begun < 5.0
    assert len(book.effects.outcomes) == number
