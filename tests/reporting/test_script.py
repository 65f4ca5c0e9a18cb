"""Interaction with a report in a browser: values, zoom, switches, sorting."""

import html
import json
import re
import shutil
import subprocess

import pytest

from turnout.reporting.curves import band, window_of
from turnout.reporting.page import render_page
from turnout.reporting.report import write_report
from turnout.reporting.style import keys_of, looks_of

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")

READER = """<script>
const seen = {}, click = one => one.dispatchEvent(new MouseEvent("click", {bubbles: true}));
const press = key => plot.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const figure = document.querySelector("figure"), plot = figure.querySelector(".plot"), values = plot.querySelector(".values");
const names = () => [...document.querySelectorAll("table")[0].tBodies[0].rows].map(row => row.cells[0].textContent);
const texts = () => [...plot.querySelectorAll(".ticks text")].map(each => each.textContent);
try {
  press("ArrowRight");
  seen.read = [...values.children].map(each => each.textContent);
  seen.colors = [...document.querySelectorAll(".switches i")].map(each => each.style.backgroundColor);
  press("+");
  seen.zoomed = texts();
  seen.tool = getComputedStyle(figure.querySelector(".whole")).visibility;
  press("0");
  seen.whole = texts();
  const run = document.querySelector(".switches button");
  click(run);
  press("ArrowRight");
  seen.without = [...values.children].map(each => each.textContent);
  seen.pressed = run.getAttribute("aria-pressed");
  seen.hidden = [...document.querySelectorAll("svg .off")].map(each => getComputedStyle(each).display);
  click(run);
  const head = document.querySelectorAll("table")[0].tHead.rows[0].cells[1];
  seen.before = names();
  click(head.querySelector("button"));
  seen.sorted = [head.getAttribute("aria-sort"), ...names()];
  click(head.querySelector("button"));
  seen.other = [head.getAttribute("aria-sort"), ...names()];
  click(head.querySelector("button"));
  seen.after = names();
  const title = each => each.querySelector("h3").textContent;
  const dots = [...document.querySelectorAll("figure")].find(each => title(each).startsWith("Weights"));
  const all = [...dots.querySelectorAll("[data-panel='0'] use")].sort((p, q) => p.x.baseVal.value - q.x.baseVal.value);
  const one = all[all.length >> 1], place = one.getBoundingClientRect(), svg = dots.querySelector("svg");
  const point = (type, x) => {
    svg.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: place.top, bubbles: true, pointerId: 1}));
  };
  svg.setPointerCapture = () => {};
  point("pointermove", place.left);
  seen.dot = [...dots.querySelector(".values").children].map(each => each.textContent);
  const before = one.getAttribute("x");
  point("pointerdown", place.left - 20);
  point("pointermove", place.left + 20);
  point("pointerup", place.left + 20);
  seen.moved = one.getAttribute("x") !== before;
  const grouped = document.querySelector("table.grouped"), heads = [...grouped.tHead.rows[0].cells];
  const rows = () => [...grouped.rows].slice(1).map(row => row.cells[1].textContent);
  const order = column => { click(heads[column].querySelector("button")); return rows().join(" "); };
  seen.grouped = [rows().join(" "), order(2), order(2), order(2), order(1), order(0), order(0), order(3)];
  seen.panels = [...grouped.tBodies].map(body => getComputedStyle(body.rows[0].cells[0].firstChild).position);
  seen.region = document.querySelector(".scroll").getAttribute("role");
  seen.width = document.documentElement.scrollWidth - document.documentElement.clientWidth;
} catch (error) { seen.error = String(error); }
document.title = JSON.stringify(seen);
</script></body>"""


def grouped_table():
    """Return a table of a reproduction's page, of two panels."""
    first = [("b", ["10.5 (9 to 11)", "x"]), ("a", ["–", "z"]), ("c", ["1,000", "y"])]
    second = [("e", ["-1", "x"]), ("d", ["2e-3", "2 y"])]
    missing = dict.fromkeys(["changes", "findings", "measures", "curves"], ())
    page = render_page(
        "reproduction.html", title="", lead="", about="", least_seeds=3, papers=False, titles=["ours", "note"],
        groups=[("the second", first), ("the first", second)], keys=keys_of(looks_of("abcde")), reaches=False,
        settings={}, environment={}, **missing,
    )  # fmt: skip
    return page[page.index('<table class="sortable grouped">') : page.index("</table>")] + "</table>"


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here: apt-get install chromium")
def test_keyboard_navigation(make_runs, tmp_path):
    records = make_runs(2, every=1)  # bands with many corners are drawn otherwise than those with few
    path = write_report(records, tmp_path / "r.html")
    page = path.read_text("utf-8").replace("</main>", f"{grouped_table()}</main>").replace("</body>", READER)
    path.write_text(page, encoding="utf-8")
    flags = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}/profile",
        "--window-size=500,844",
    )
    shown = subprocess.run(
        [str(BROWSER), *flags, "--dump-dom", path.as_uri()], capture_output=True, timeout=60, text=True
    ).stdout
    found = re.search(r"<title>(.*?)</title>", shown)
    assert found
    seen = json.loads(html.unescape(found[1]))
    assert "error" not in seen
    algorithms = list(dict.fromkeys(record.algorithm for record in records))
    assert re.fullmatch(r"round \d+", seen["read"][0])
    assert sorted(line.partition(":")[0] for line in seen["read"][1:]) == sorted(algorithms)
    at, window = int(seen["read"][0].removeprefix("round ")), window_of(records)
    for name, _, value in (line.partition(": ") for line in seen["read"][1:]):
        samples = [each.history.column("test_accuracy") for each in records if each.algorithm == name]
        rounds, _, mean, _ = band(samples, window)
        assert float(value) == pytest.approx(100 * mean[rounds == at][0], rel=1e-4)
    assert len(set(seen["colors"])) == len(algorithms)
    assert all(color.startswith("rgb(") for color in seen["colors"])
    assert seen["zoomed"]
    assert seen["tool"] == "visible"
    assert seen["whole"] == []
    assert [line.partition(":")[0] for line in seen["without"][1:]].count(algorithms[0]) == 0
    assert seen["pressed"] == "false"
    assert set(seen["hidden"]) == {"none"}
    assert seen["before"] == algorithms == seen["after"]
    assert seen["sorted"][0] == "descending"
    assert seen["sorted"][1:] != algorithms
    assert seen["other"] == ["ascending", *reversed(seen["sorted"][1:])]
    declared, largest, least = "b a c e d", "c b a d e", "b c a e d"
    by_name, by_panel, back, by_note = "a b c d e", "e d b a c", "b a c e d", "b c a d e"
    assert seen["grouped"] == [declared, largest, least, declared, by_name, by_panel, back, by_note]
    assert set(seen["panels"]) == {"static"}, "the first row of each group shows its name"
    assert seen["region"] == "region", "a table that is moved sideways is reached by keys"
    assert len(seen["dot"]) == 3
    assert seen["dot"][0] in algorithms
    assert seen["dot"][2].startswith("weight: ")
    assert seen["moved"]
    assert seen["width"] == 0, "the page does not scroll sideways"
