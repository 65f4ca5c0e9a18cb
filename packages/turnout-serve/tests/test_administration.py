"""An administrator names, bans and removes clients and deals codes: with the right token alone, and by the journal."""

import asyncio
import copy
import hmac
import json
import os
import random
import re
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import turnout as to
from turnout.core.checks import ConfigurationError
from turnout.pieces.aggregation import SecureSum
from turnout_serve.cli.commands.clients import codes_in, shown
from turnout_serve.client.calls import JoinError
from turnout_serve.server.enrollment import Enrollment, hashed
from turnout_serve.server.http import administration
from turnout_serve.server.http.app import ROUTES
from turnout_serve.server.journal.events import Event
from turnout_serve.server.journal.replay import replay
from turnout_serve.server.options import Options
from turnout_serve.server.process import Server
from turnout_serve.server.store import files, store
from turnout_serve.server.store.database import StoreUnavailable
from turnout_serve.server.verdicts import Refused
from turnout_serve.wire.administrator import read_token

from .test_crashes import Reaper
from .world import ADMINISTRATOR, DATA, LOCAL, Host, Killed, World

MODEL = to.models.Mlp(hidden=(8,))
POPULATION = to.Population(to.availability.Everyone())
RUN = to.Experiment(DATA, MODEL, to.fedau(LOCAL, cutoff=3), POPULATION, rounds=6)
PART = to.Experiment(DATA, MODEL, to.fedavg(LOCAL, also=(to.selection.Uniform(2),)), POPULATION, rounds=6)
SCAFFOLD = to.Experiment(DATA, MODEL, to.scaffold(LOCAL), POPULATION, rounds=6)
SECURE = to.Experiment(DATA, MODEL, to.fedau(LOCAL, also=(SecureSum(largest=64.0),)), POPULATION, rounds=4)
ADMIN_ROUTES = [route for route in ROUTES if route.sender == "administrator"]


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def token_of(deployed, client):
    return deployed.homes[client].state.token


def ban(deployed, client, reason="sends noise"):
    return deployed.host.administer("POST", f"clients/{client}", change="ban", text=reason)


def rows(deployed):
    return deployed.host.administer("GET", "clients").table()["clients"]


def asked_since(deployed, number):
    """Clients whose reports are in the journal behind an entry."""
    return {entry.client for entry in deployed.host.store.entries(number) if entry.kind == "report"}


def replayed(deployed):
    """The model that the journal leads to, compared with the one that the server has."""
    deployed.host.service.writer.checkpoint()
    found = replay(deployed.setting, deployed.folder)
    assert torch.equal(found.driver.params, deployed.host.driver.params)
    return found


# Who may.


@pytest.mark.parametrize("route", ADMIN_ROUTES, ids=lambda route: route.name)
def test_administrator_routes_require_the_administrator_token(world, route):
    """Requests without a token, with a wrong one, or with a client's are refused and change nothing."""
    deployed = world(RUN)
    path, before = route.path.replace("{client}", "0"), deployed.host.driver.applied
    body = json.dumps({"change": "ban", "text": "because", "number": 3}).encode()
    for headers, status in (
        ({}, 401),
        ({"authorization": f"Basic {ADMINISTRATOR}"}, 401),
        (bearer("a" * 43), 401),
        (bearer(ADMINISTRATOR[:-1] + "y"), 401),
        (bearer(hashed(ADMINISTRATOR)), 401),  # what the server keeps of it is no token
        (bearer(token_of(deployed, 0)), 403),
    ):
        answer = deployed.host.send(route.method, path, body, headers)
        assert (answer.status, set(answer.table())) == (status, {"reason"})
    assert deployed.host.driver.applied == before
    assert deployed.host.send("POST", "/v1/checkin", b"{}", bearer(ADMINISTRATOR)).status == 401


def test_server_without_administrator_refuses_every_token(world):
    """The empty token is refused, too: a server without an administrator does not have its hash."""
    deployed = world(RUN)
    deployed.host.http._gate._administrator = ""
    assert deployed.host.administer("GET", "clients").status == 401


def test_tokens_are_compared_in_constant_time(world, monkeypatch):
    compared = []
    deployed, digest = world(RUN), hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: (compared.append((a, b)), digest(a, b))[1])
    deployed.host.administer("GET", "clients", token="g" * 40)
    assert compared == [(hashed("g" * 40), hashed(ADMINISTRATOR))]


def test_guessed_tokens_are_rate_limited_by_address(world):
    """An address that guesses has to wait; the administrator at another address does not."""
    from turnout_serve.server.http.app import Http

    deployed = world(RUN)
    limited = Http(deployed.host.service, {}, Options(rate=5.0), hashed(ADMINISTRATOR))
    app, deployed.host.app = deployed.host.app, limited.app()
    answers = [deployed.host.administer("GET", "clients", token=f"{n:040}").status for n in range(20)]
    assert (answers[:10], answers[-1]) == ([401] * 10, 429)
    assert deployed.host.administer("GET", "clients").status == 200
    deployed.host.app = app


def test_administrator_token_is_drawn_once_and_readable_by_owner_only(folder, monkeypatch):
    def started():
        made = Server(RUN, folder, None, Options(port=0))
        made.stop()
        return made

    monkeypatch.delenv("TURNOUT_ADMIN_TOKEN", raising=False)
    started()
    path = folder / "admin.token"
    token = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) >= 32
    started()
    assert path.read_text().strip() == token
    others = (each for each in folder.rglob("*") if each.is_file() and each != path)
    assert not any(token.encode() in each.read_bytes() for each in others)
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"others can read .*admin\.token.*: chmod 600"):
        started()
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigurationError, match=r"admin\.token: needed a token of 32 to 200 letters"):
        started()
    path.unlink()
    monkeypatch.setenv("TURNOUT_ADMIN_TOKEN", "e" * 40)
    assert started().http._gate._administrator == hashed("e" * 40)
    assert not path.exists()
    monkeypatch.setenv("TURNOUT_ADMIN_TOKEN", "e" * 31)
    with pytest.raises(ConfigurationError, match="TURNOUT_ADMIN_TOKEN: needed a token"):
        read_token(path)


# Clients.


def test_list_of_clients_has_state_and_counts(world, monkeypatch):
    deployed = world(RUN)
    assert deployed.host.administer("POST", "clients/3", change="name", text="Ward 4").status == 200
    deployed.round()
    deployed.round()
    found = rows(deployed)
    assert [row["client"] for row in found] == list(range(4))
    assert (found[3]["name"], found[3]["reason"]) == ("Ward 4", None)
    assert {row["state"] for row in found} <= {"there", "at work"}
    version = deployed.host.driver.version
    assert [(row["reports"], row["participation"]) for row in found] == [(version, 1.0)] * 4
    assert all(row["seen"] < 60 for row in found)
    deployed.host.send("POST", "/v1/leave", b"{}", bearer(token_of(deployed, 2)))
    ban(deployed, 3)
    assert [rows(deployed)[client]["state"] for client in (2, 3)] == ["away", "banned"]
    assert rows(deployed)[3]["reason"] == "sends noise"
    page = deployed.host.administer("GET", "clients?first=2").table()
    assert ([row["client"] for row in page["clients"]], page["next"]) == ([2, 3], None)
    monkeypatch.setattr(administration, "MOST_CLIENTS", 3)
    assert deployed.host.administer("GET", "clients").table()["next"] == 3
    for first in ("x", "-1", "9" * 16):
        answer = deployed.host.administer("GET", f"clients?first={first}")
        assert (answer.status, answer.table()["reason"]) == (400, "first is a whole number of at most 15 digits")
    assert deployed.host.administer("GET", "clients?first=99").table()["clients"] == []


@pytest.mark.parametrize(
    ("client", "body", "status", "reason"),
    [
        (0, {}, 400, "change is missing"),
        (0, {"change": "promote"}, 400, "change is 'promote': input should be 'name', 'ban', 'unban' or 'remove'"),
        (0, {"change": "ban"}, 400, "a ban needs a reason"),
        (0, {"change": "ban", "text": "x" * 101}, 400, "string should have at most 100 characters"),
        (0, {"change": "name", "text": "\x1b[31m"}, 400, "needed printable characters"),
        (8, {"change": "unban"}, 404, "there is no client 8"),
        ("x", {"change": "unban"}, 404, "there is no such client"),
    ],
)
def test_invalid_changes_of_clients_are_refused(world, client, body, status, reason):
    answer = world(RUN).host.administer("POST", f"clients/{client}", **body)
    assert answer.status == status
    assert reason in answer.table()["reason"]


def test_banned_client_gets_the_reason_and_ends(world):
    """The ban ends the task of the client, answers all of its requests, and refuses a new enrollment with its token."""
    deployed = world(RUN)
    deployed.round()
    deployed.homes[0].train(deployed.host)
    task = deployed.host.driver.task_of(0)
    assert ban(deployed, 0).table() == {"client": 0, "state": "banned"}
    with pytest.raises(JoinError, match="this client is banned: sends noise"):
        deployed.homes[0].turn(deployed.host)
    for method, path in (
        ("POST", "/v1/enrol"), ("POST", "/v1/checkin"), ("POST", "/v1/leave"), ("GET", f"/v1/models/{task.model}"),
        ("GET", f"/v1/tasks/{task.task}"), ("POST", f"/v1/tasks/{task.task}/heartbeat"),
        ("POST", f"/v1/tasks/{task.task}/fail"), ("PUT", f"/v1/tasks/{task.task}/report"),
    ):  # fmt: skip
        answer = deployed.host.send(method, path, b'{"protocol": 2}', bearer(token_of(deployed, 0)))
        assert (answer.status, answer.table()["reason"]) == (403, "this client is banned: sends noise"), path
    assert deployed.host.store.outcomes.get(0, task.task).outcome == "banned"


def test_ban_ends_an_open_long_poll(world):
    """The long poll of a banned client is answered at once, not at the end of its lease."""
    import asyncio

    deployed = world(PART, min_clients=9)  # nobody has work
    host = deployed.host

    async def asks():
        body = json.dumps({"wait": 50}).encode()
        waiting = asyncio.ensure_future(host._send("POST", "/v1/checkin", body, bearer(token_of(deployed, 2)), None))
        while not len(host.http.waiting):
            await asyncio.sleep(0)
        host.http._loop = asyncio.get_running_loop()
        path, body = "/v1/admin/clients/2", json.dumps({"change": "ban", "text": "leaves"}).encode()
        await host._send("POST", path, body, bearer(ADMINISTRATOR), None)
        return await asyncio.wait_for(waiting, 5)

    answer = host.loop.run_until_complete(asks())
    assert (answer.status, answer.table()["reason"]) == (403, "this client is banned: leaves")


def test_run_continues_without_banned_client_and_replays(world):
    """A ban changes the selection, so it is in the journal: a restart keeps it, a replay agrees, and it can be lifted."""
    deployed = world(PART)
    deployed.round()
    ban(deployed, 1)
    ban(deployed, 2)
    before = deployed.host.driver.applied
    deployed.homes = [home for home in deployed.homes if home.row not in (1, 2)]
    deployed.round()
    deployed.restart()
    deployed.round()
    assert asked_since(deployed, before).isdisjoint({1, 2})
    assert deployed.host.administer("POST", "clients/2", change="unban").table() == {"client": 2, "state": "away"}
    assert rows(deployed)[1]["reason"] == "sends noise"
    deployed.run()
    found = replayed(deployed)
    assert found.same
    assert found.driver.roster.bans == {1: "sends noise"}
    assert all(client != 1 or went <= 3.0 for client, _, went, *_ in found.visits.stays)


def test_token_of_a_removed_client_enrolls_a_new_one(world):
    """Numbers are not used again; a restart and a replay agree."""
    deployed = world(RUN)
    deployed.round()
    assert deployed.host.administer("POST", "clients/3", change="name", text="Ward 4").status == 200
    assert deployed.host.administer("POST", "clients/3", change="remove").table()["state"] == "removed"
    for change in ("name", "unban", "remove"):
        answer = deployed.host.administer("POST", "clients/3", change=change, text="again")
        assert (answer.status, answer.table()["reason"]) == (409, "client 3 was removed")
    old = bearer(token_of(deployed, 3))
    assert deployed.host.send("POST", "/v1/checkin", b"{}", old).status == 401
    deployed.restart()
    assert deployed.host.send("POST", "/v1/checkin", b"{}", old).status == 401
    answer = deployed.host.send("POST", "/v1/enrol", b'{"protocol": 2, "name": "new"}', old)
    assert (answer.status, answer.table()["client"]) == (201, 4)
    assert [(row["name"], row["state"]) for row in rows(deployed)][3] == ("", "removed")
    deployed.homes = [home for home in deployed.homes if home.row != 3]
    deployed.run()
    assert replayed(deployed).driver.roster.removed == {3}


@pytest.mark.parametrize("is_restored", [False, True], ids=["removed", "unknown to a restored server"])
def test_client_that_enrolls_as_a_new_one_begins_without_memory(folder, world, is_restored):
    """The server's means of control variates have zeros for a new client, also under the number of a lost one."""
    deployed = world(SCAFFOLD, homes=folder / "homes")
    home = deployed.homes[3]
    while home.state.memory is None or not home.has_report:
        for each in deployed.homes:
            each.step(deployed.host)
    assert home.state.memory["control"].norm() > 0
    if is_restored:  # from a copy that knows clients 0 to 2
        deployed.host.close()
        store.Store(folder / "copy").close()
        with closing(sqlite3.connect(folder / "copy/journal.sqlite")) as journal, journal:
            journal.execute("update facts set value = ? where name = 'run'", (home.state.run,))
        deployed.host = Host(deployed.setting, folder / "copy", deployed.clock, **deployed.options)
        for each in deployed.homes[:3]:
            deployed.host.send("POST", "/v1/enrol", b'{"protocol": 2}', bearer(each.state.token))
    else:
        assert deployed.host.administer("POST", "clients/3", change="remove").status == 200
    with pytest.raises(JoinError, match="does not know the token"):
        home.turn(deployed.host)
    home = home.reborn()
    home.step(deployed.host)
    assert home.state.client == (3 if is_restored else 4)
    for state in (home.state, home.reborn().state):
        assert (state.memory, state.pending) == (None, None)


@pytest.mark.parametrize("phase", ["train", "share", "mask", "open"])
def test_ban_during_a_secure_sum_drops_the_client(world, phase):
    """The sum is that of the other clients, as if the client had left, and a replay leads to the same model."""
    deployed = world(SECURE)
    for _ in range(100):
        held = deployed.host.driver.task_of(0)
        if held is not None and held.phase == phase:
            break
        for home in deployed.homes:
            home.step(deployed.host)
    else:
        raise AssertionError(f"never at {phase}")
    ban(deployed, 0)
    before = deployed.host.driver.applied
    deployed.homes = deployed.homes[1:]
    deployed.run()
    assert 0 not in asked_since(deployed, before)
    assert deployed.host.driver.version == SECURE.rounds
    assert replayed(deployed).same


def test_bans_survive_kills(folder, monkeypatch):
    """The server is killed at every write around changes of clients and codes: each change is applied once, or not at all."""
    reaper = Reaper(1)
    for name, function in (("sync", lambda _: None), ("move", os.replace)):
        monkeypatch.setattr(files, name, reaper.around("server", function))
    monkeypatch.setattr(store.Store, "commit", reaper.around("server", store.Store.commit))
    deployed = World(PART, folder, checkpoint_every=0.0)
    changes = [(1, "ban", "a"), (2, "ban", "b"), (1, "unban", ""), (0, "remove", ""), (1, "ban", "c"), (3, "name", "x")]
    deployed.round()
    homes = list(deployed.homes)
    try:
        for number in range(200):
            if not changes and all(home.over for home in homes):
                break
            reaper.side, reaper.left = "server", 1 + number % 7 if changes else None
            client, change, text = changes[0] if changes else (3, "name", "x")
            try:
                answer = deployed.host.administer("POST", f"clients/{client}", change=change, text=text)
                if answer.status in (200, 409):
                    changes = changes[1:]
                homes = [home for home in homes if home.row not in deployed.host.driver.roster.bans]
                for home in homes:
                    home.turn(deployed.host)
                deployed.clock.now += 1.0
                deployed.host.pump()
            except (Killed, StoreUnavailable):
                reaper.left = None
                deployed.restart()
        assert reaper.kills["server"] > 6
        roster = deployed.host.driver.roster
        assert (roster.bans, roster.removed, roster.names[3]) == ({2: "b", 0: "removed", 1: "c"}, {0}, "x")
        assert replayed(deployed).driver.roster.facts() == roster.facts()
        deployed.host.service.writer.checkpoint()
        deployed.restart()
        assert deployed.host.driver.roster.bans == roster.bans == {2: "b", 0: "removed", 1: "c"}
    finally:
        deployed.close()


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_changes_are_all_applied(world, seed):
    """Changes, enrollments and reports are journaled in some order, and a restart and a replay give the same state."""
    deployed = world(PART)
    host, chance = deployed.host, random.Random(seed)
    host.service.enrollment.needs_code = True
    codes = host.administer("POST", "codes/add", number=12).table()["codes"]

    def change():
        kind = chance.choice(["ban", "unban", "remove", "name", "ban"])
        return "POST", f"/v1/admin/clients/{chance.randrange(4)}", {"change": kind, "text": f"by {chance.random()}"}

    def about_codes():
        one = {"code": chance.choice(codes)} if chance.random() < 0.8 else {}
        return chance.choice(
            [("POST", "/v1/admin/codes/add", {"number": 2}), ("POST", "/v1/admin/codes/withdraw", one)]
        )

    def newcomer(number):
        body = {"protocol": 2, "code": codes[number % len(codes)]}
        return host._send(
            "POST", "/v1/enrol", json.dumps(body).encode(), bearer(f"newcomer-{number}-" + "x" * 30), None
        )

    async def at_once(turn):
        asked = [chance.choice([change, about_codes])() for _ in range(8)]
        requests = [
            host._send(method, path, json.dumps(body).encode(), bearer(ADMINISTRATOR), None)
            for method, path, body in asked
        ]
        return await asyncio.gather(*requests, newcomer(2 * turn), newcomer(2 * turn + 1), newcomer(2 * turn))

    for turn in range(4):
        for home in list(deployed.homes):
            try:
                home.step(host)
            except JoinError:  # banned or removed
                deployed.homes.remove(home)
        answers = host.loop.run_until_complete(at_once(turn))
        assert {answer.status for answer in answers} <= {200, 201, 403, 404, 409}
    used = [client for client in host.store.codes().values() if client is not None]
    assert sorted(used) == list(range(4, len(host.store.clients())))  # a code is used once, by one newcomer
    expected = state_of(host)
    deployed.restart()
    assert state_of(deployed.host) == expected
    found = replay(deployed.setting, deployed.folder)
    assert found.driver.roster.facts() == expected["roster"]
    assert found.driver.present() == expected["there"]


def state_of(host):
    """What an administrator may change."""
    driver = host.driver
    tasks = {
        client: [task.task for task in driver.tasks.of_client(client)] for client in range(host.service.num_clients)
    }
    facts = {"roster": driver.roster.facts(), "there": driver.present(), "tasks": tasks}
    return copy.deepcopy(facts | {"clients": host.store.clients(), "codes": host.store.codes()})


# Codes.


@pytest.fixture
def with_codes(world):
    """A federation that takes codes."""
    deployed = world(RUN)
    deployed.host.service.enrollment.needs_code = True
    return deployed


def enroll(deployed, token, code):
    body = json.dumps({"protocol": 2, "code": code}).encode()
    return deployed.host.send("POST", "/v1/enrol", body, bearer(token * 40)).status


def test_codes_are_added_and_withdrawn(with_codes):
    host = with_codes.host
    assert host.administer("GET", "codes").table() == {"used": 0, "unused": 0, "free": []}
    codes = host.administer("POST", "codes/add", number=3).table()["codes"]
    assert len(set(codes)) == 3
    assert all(re.fullmatch(r"[\w-]{16}", code) for code in codes)
    assert enroll(with_codes, "a", codes[0]) == 201
    assert host.administer("POST", "codes/withdraw", code=codes[1]).table() == {
        "used": 1,
        "unused": 1,
        "withdrawn": 1,
        "free": [hashed(codes[2])],
    }
    assert enroll(with_codes, "b", codes[1]) == 403
    for code in (codes[0], codes[1], "unknown"):
        assert host.administer("POST", "codes/withdraw", code=code).status == 404
    with_codes.restart()
    with_codes.host.service.enrollment.needs_code = True
    assert enroll(with_codes, "b", codes[1]) == 403
    withdrawn = with_codes.host.administer("POST", "codes/withdraw").table()
    assert withdrawn == {"used": 1, "unused": 0, "withdrawn": 1, "free": []}
    assert enroll(with_codes, "c", codes[2]) == 403
    assert with_codes.host.administer("POST", "codes/withdraw").status == 404
    assert not any(code.encode() in path.read_bytes() for code in codes for path in with_codes.folder.glob("*.sqlite*"))


def test_unused_codes_of_a_folder_are_listed(with_codes, tmp_path):
    """By the file with the first codes: the server knows the hashes of these and of later ones, and no code."""
    codes = with_codes.host.administer("POST", "codes/add", number=3).table()["codes"]
    assert enroll(with_codes, "a", codes[0]) == 201
    answer = with_codes.host.administer("GET", "codes").table()
    (tmp_path / "codes.txt").write_text("\n".join(codes[:2]))
    lines = str(shown(answer, codes_in(tmp_path))).splitlines()
    assert lines == ["codes: 2 unused, 1 used", codes[1], "and 1 others, which `codes add` printed when it drew them"]
    assert str(shown(answer, codes_in(tmp_path / "nowhere"))) == "codes: 2 unused, 1 used"


@pytest.mark.parametrize("number", [0, 51, "x"])
def test_number_of_codes_per_request_is_limited(with_codes, number):
    answer = with_codes.host.administer("POST", "codes/add", number=number)
    assert answer.status == 400
    assert answer.table()["reason"].startswith(f"number is {number!r}: input should be ")


def test_server_with_open_enrollment_has_no_codes(world):
    host = world(RUN).host
    for method, path in (("GET", "codes"), ("POST", "codes/add"), ("POST", "codes/withdraw")):
        answer = host.administer(method, path)
        assert answer.status == 409
        assert answer.table()["reason"].startswith("anyone may enroll at this server")


def test_code_is_used_by_the_first_event_of_a_group():
    """An enrollment and a withdrawal in one group, in both orders, also if the enrollment has to be written a second time."""
    made = enrollment_with({"a": None})
    batch = set[str]()
    assert made.admit(Event("enrol", digest="t", data={"code": "a"}), batch) is None
    refused = made.admit_change(Event("codes", data={"withdraw": "a"}), batch)
    assert refused is not None
    assert refused.status == 404
    made, batch = enrollment_with({"a": None}), set[str]()
    assert made.admit_change(Event("codes", data={"withdraw": None}), batch) is None
    refused = made.admit(Event("enrol", digest="t", data={"code": "a"}), batch)
    assert refused is not None
    assert refused.status == 403


def test_code_of_an_unwritten_enrollment_counts_as_used():
    """A second client cannot use the code of an enrollment that waits for the disk."""
    made, waits = enrollment_with({"a": None}), Event("enrol", digest="t", data={"code": "a"})
    assert made.admit(waits, set()) is None
    again = set[str]()
    assert made.admit(waits, again) is None
    refused = made.admit(Event("enrol", digest="u", data={"code": "a"}), again)
    assert refused is not None
    assert refused.status == 403


def enrollment_with(codes: dict[str, int | None]) -> Enrollment:
    store: Any = SimpleNamespace(facts=SimpleNamespace(run="r"), clients=dict, codes=lambda: codes)
    return Enrollment(store, max_clients=5, needs_code=True, over=lambda: None, most_numbers=9)


@pytest.mark.parametrize("kill", [False, True])
def test_answers_that_follow_from_an_unwritten_enrollment_wait_for_it(world, monkeypatch, kill):
    """The attack: a proxy sends an enrollment twice, others want its code, the disk is full, and the server is killed."""
    deployed = world(RUN, max_clients=9)
    deployed.options["enrollment"] = "codes"
    deployed.host.store.add_codes([hashed("code")])
    deployed.restart()
    service = deployed.host.service
    n = len(service.enrollment)
    events = [
        service.enroll("a" * 40, "code"),
        service.enroll("a" * 40, "code"),
        service.enroll("b" * 40, "code"),
        service.writer.put(Event("codes", data={"withdraw": hashed("code")})),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(store.Store, "commit", unavailable)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                service.writer.flush()
            assert not any(event.done() for event in events)
    if kill:
        deployed.restart()
        assert len(deployed.host.service.enrollment) == n
        return
    deployed.host.pump()
    assert [event.result(0).status for event in events] == [201, 200, 403, 404]
    assert [event.result(0).body.get("client") for event in events[:2]] == [n, n]
    assert len(deployed.host.service.enrollment) == n + 1


def unavailable(*_):
    raise StoreUnavailable("the disk is full")


def test_removed_client_in_a_long_poll_is_unknown(world):
    """Its token is unknown from the removal on, 401; a banned client is told so with 403."""
    deployed = world(RUN)
    service = deployed.host.service
    for change, status in (("ban", 403), ("remove", 401)):
        deployed.host.administer("POST", "clients/1", change=change, text="why")
        with pytest.raises(Refused) as refused:
            service.work_of(1)
        assert refused.value.verdict.status == status
        answer = deployed.host.send("POST", "/v1/checkin", b"{}", bearer(token_of(deployed, 1)))
        assert answer.status == status
