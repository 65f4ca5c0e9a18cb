/* Interaction with tables: sorting, within groups if there are some, and scrolling wide ones by keys. */
(() => {
"use strict";
const number = cell => {
  const found = cell.textContent.replace(/,/g, "").match(/^[^\p{L}\d-]*(-?\d+(\.\d+)?(e[-+]?\d+)?)/u);
  return found ? Number(found[1]) : NaN;
};
const byText = (one, other) => one.textContent.localeCompare(other.textContent, "en", {numeric: true});
const byNumber = sign => (one, other) => {
  const [p, q] = [number(one), number(other)];
  return isNaN(p) - isNaN(q) || sign * (p - q) || 0; /* what is no number comes last, either way */
};

const sortable = table => {
  const heads = [...table.tHead.rows[0].cells], bodies = [...table.tBodies], groups = bodies.map(body => [...body.rows]);
  const grouped = table.matches(".grouped");
  heads.forEach((head, column) => {
    const cells = groups.flat().map(row => row.cells[column]);
    const filled = cells.filter(cell => cell.textContent !== "–"), counted = filled.filter(cell => !isNaN(number(cell)));
    const numbers = cells.every(cell => cell.matches("td")) && 0 < counted.length && filled.length <= 2 * counted.length;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = numbers ? {null: "descending", descending: "ascending"} : {null: "ascending", ascending: "descending"};
      const now = order[head.getAttribute("aria-sort")], sign = now === "descending" ? -1 : 1;
      for (const each of heads) each.removeAttribute("aria-sort");
      if (now) head.setAttribute("aria-sort", now);
      const compare = numbers ? byNumber(sign) : (one, other) => sign * byText(one, other);
      const sorted = rows => now ? [...rows].sort((one, other) => compare(one.cells[column], other.cells[column])) : rows;
      groups.forEach((rows, i) => bodies[i].append(...sorted(rows)));
      const firsts = groups.map(rows => rows[0]), whole = grouped && !column; /* the first column is that of the groups */
      for (const row of whole ? sorted(firsts) : firsts) table.append(bodies[firsts.indexOf(row)]);
    });
  });
};

/* What can be moved sideways can be reached by keys. */
const reachable = () => {
  for (const box of document.querySelectorAll(".scroll")) {
    const moves = box.scrollWidth > box.clientWidth, caption = box.querySelector("caption");
    for (const [key, value] of Object.entries({tabindex: "0", role: "region", "aria-label": caption ? caption.textContent : "table"}))
      if (moves) box.setAttribute(key, value);
      else box.removeAttribute(key);
  }
};

document.querySelectorAll("table.sortable").forEach(sortable);
addEventListener("resize", reachable);
reachable();
})();
