"""Ranks of clients from tables, by client or by kind of device."""

import pytest

from turnout import ALGORITHMS, ConfigurationError
from turnout.core.checks import DataError
from turnout.pieces.guard import TruncatedRank, ranks_from_table


def table(folder, text):
    file = folder / "devices.csv"
    file.write_text(text)
    return str(file)


def test_ranks_come_from_a_column_in_the_order_of_clients(tmp_path):
    path = table(tmp_path, "client,rank,city\n2,8,Bonn\n0,2,Ulm\n1,4,Ulm\n")
    assert ranks_from_table(path) == (2, 4, 8)
    assert ALGORITHMS["flexlora"](ranks=path) == ALGORITHMS["flexlora"](ranks=(2, 4, 8))


def test_ranks_come_from_kinds_of_devices(tmp_path):
    path = table(tmp_path, "device,client\nlaptop,1\nphone,0\nphone,2\n")
    assert ranks_from_table(path, "device", {"phone": 2, "laptop": 8}) == (2, 8, 2)


@pytest.mark.parametrize(
    ("text", "arguments", "why"),
    [
        ("client,rank\n0,2\n2,4\n", (), "needed one row for each client, numbered from 0 to N - 1"),
        ("client,rank\n0,2\n0,4\n", (), "needed one row for each client"),
        ("client,rank\n0,2.5\n", (), "got 2.5 as 'rank', needed a whole number"),
        ("client,size\n0,2\n", (), "got columns .*'client', 'size'.*needed .*'rank'"),
        ("client,rank\n", (), "it has no rows"),
        ("client,device\n0,watch\n", ("device", {"phone": 2}), "column 'device' has watch, needed one of phone"),
    ],
)
def test_other_tables_are_refused(tmp_path, text, arguments, why):
    with pytest.raises(DataError, match=why):
        ranks_from_table(table(tmp_path, text), *arguments)


@pytest.mark.parametrize("ranks", [(), (0,), (2, 1.5), (True,)])
def test_non_integer_ranks_are_refused(ranks):
    with pytest.raises(ConfigurationError, match=r"ranks: got .*needed whole numbers from 1 on"):
        TruncatedRank(ranks)
