/* Interaction with figures: reading and zooming curves, switching runs on and off, enlarging. Without scripts the page shows
   the same figures, static. */
(() => {
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const off = new Set(), panels = [];

const make = (name, attributes = {}, ...children) => {
  const made = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};
const written = value => {
  const size = Math.abs(value);
  if (size && (size >= 1e7 || size < 1e-3)) return value.toExponential(2);
  return Number(value.toPrecision(5)).toLocaleString("en");
};

/* An axis in fractions of its length at first: 0 at its low end, 1 at its high one. */
const scale = ([low, high, kind]) => ({
  value: at => kind === "log" ? low * (high / low) ** at : low + (high - low) * at,
  place: value => kind === "log" ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low),
  log: kind === "log",
});
const ticks = (axis, from, to) => {
  const low = axis.value(from), high = axis.value(to);
  if (axis.log && high > 8 * low) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1)
      for (const digit of high < 500 * low ? [1, 2, 5] : [1]) found.push(digit * 10 ** power);
    return found.filter(value => value >= low && value <= high);
  }
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(digit => digit * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
};

class Panel {
  constructor(svg, group, spec) {
    Object.assign(this, {svg, group, labels: spec.labels});
    const [left, top, right, bottom] = spec.box;
    this.box = {left, top, right, bottom, width: right - left, height: bottom - top};
    this.x = scale(spec.x);
    this.y = scale(spec.y);
    this.view = this.whole = {x: [0, 1], y: [0, 1]};
    this.series = new Map();
    this.gather();
  }

  /* Put what is data into one group that can be moved and stretched, cut off at the edges of the axes. */
  gather() {
    const {left} = this.box;
    const data = [...this.group.children].filter(child => !child.matches(".axis") && (child.matches("[clip-path]") || child.querySelector("[clip-path]")));
    if (!data.length) return;
    const clip = (data[0].matches("[clip-path]") ? data[0] : data[0].querySelector("[clip-path]")).getAttribute("clip-path");
    this.zoomed = make("svg:g", {class: "curves"});
    data[0].before(make("svg:g", {"clip-path": clip}, this.zoomed));
    this.zoomed.append(...data);
    for (const each of this.zoomed.querySelectorAll("[clip-path]")) each.removeAttribute("clip-path");
    for (const each of this.zoomed.querySelectorAll("path, use")) each.setAttribute("vector-effect", "non-scaling-stroke");
    this.ticks = make("svg:g", {class: "ticks"});
    this.reading = make("svg:g", {class: "reading"});
    this.group.append(this.ticks, this.reading);
    for (const element of this.zoomed.querySelectorAll("[data-series]")) {
      const name = element.dataset.series;
      if (!this.series.has(name)) this.series.set(name, {elements: [], points: [], color: ""});
      const one = this.series.get(name), path = element.querySelector(":scope > path"), dots = element.querySelectorAll("use");
      one.elements.push(element);
      if (dots.length > 1 && !path) this.scatter(one, element, dots);
      if (!path || one.points.length || getComputedStyle(path).stroke === "none") continue; /* a band has no stroke */
      one.color = getComputedStyle(path).stroke;
      const numbers = (path.getAttribute("d").match(/-?[\d.]+(?:e-?\d+)?/g) || []).map(Number);
      for (let i = 0; i + 1 < numbers.length; i += 2)
        one.points.push([(numbers[i] - left) / this.box.width, (this.box.bottom - numbers[i + 1]) / this.box.height]);
    }
  }

  /* Dots are moved one by one, so that they stay round. */
  scatter(one, element, dots) {
    this.zoomed.after(element);
    one.color = getComputedStyle(dots[0]).fill;
    one.dots = [...dots].map(dot => ({dot, at: [(dot.x.baseVal.value - this.box.left) / this.box.width, (this.box.bottom - dot.y.baseVal.value) / this.box.height]}));
  }

  get dots() { return [...this.series].filter(([name, one]) => one.dots && !off.has(name)).flatMap(([name, one]) => one.dots.map(each => ({name, color: one.color, ...each}))); }

  get shown() { return [...this.series].filter(([name, one]) => one.points.length && !off.has(name)); }

  draw() {
    const {x: [a, b], y: [c, d]} = this.view, {left, top, right, bottom, width, height} = this.box;
    const sx = 1 / (b - a), sy = 1 / (d - c);
    this.zoomed.setAttribute("transform", `matrix(${sx} 0 0 ${sy} ${left * (1 - sx) - sx * a * width} ${bottom * (1 - sy) + sy * c * height})`);
    this.svg.closest("figure").classList.toggle("is-zoomed", panels.some(other => other.svg === this.svg && other.view !== other.whole));
    for (const {dot, at: [u, v]} of [...this.series.values()].flatMap(one => one.dots || [])) {
      dot.setAttribute("x", left + (u - a) * sx * width);
      dot.setAttribute("y", bottom - (v - c) * sy * height);
    }
    const whole = this.view === this.whole;
    for (const tick of this.group.querySelectorAll(".xtick, .ytick")) tick.style.display = whole ? "" : "none";
    this.ticks.replaceChildren();
    if (whole) return;
    for (const value of ticks(this.x, a, b)) {
      const at = left + (this.x.place(value) - a) * sx * width;
      this.ticks.append(make("svg:line", {x1: at, x2: at, y1: top, y2: bottom}), make("svg:text", {x: at, y: bottom + 14, "text-anchor": "middle"}, written(value)));
    }
    for (const value of ticks(this.y, c, d)) {
      const at = bottom - (this.y.place(value) - c) * sy * height;
      this.ticks.append(make("svg:line", {x1: left, x2: right, y1: at, y2: at}), make("svg:text", {x: left - 5, y: at + 3.5, "text-anchor": "end"}, written(value)));
    }
  }

  /* Show a range of the first axis, and of the second what is shown in it: of the whole range, what was drawn to be seen. */
  show(from, to) {
    from = Math.max(0, from);
    to = Math.min(1, to);
    if (to - from < 1e-3) return;
    const everything = from === 0 && to === 1;
    const places = [...this.shown.map(([, one]) => one.points), this.dots.map(each => each.at)];
    const heights = places.flatMap(points => points.filter(([u]) => u >= from && u <= to).map(([, v]) => v)).filter(v => Number.isFinite(v) && (!everything || (v >= 0 && v <= 1)));
    const low = Math.min(...heights), high = Math.max(...heights), room = 0.06 * (high - low) || 0.02;
    this.view = (everything && !this.someOff) || !heights.length ? (everything ? this.whole : {x: [from, to], y: [0, 1]}) : {x: [from, to], y: [low - room, high + room]};
    this.draw();
    this.read(null);
  }

  get someOff() { return [...this.series.keys()].some(name => off.has(name)); }

  /* Say what the curves are at a place of the first axis, in fractions of what is shown; null says nothing. */
  read(at, up = null) {
    const plot = this.svg.closest(".plot"), note = plot.querySelector(".values"), lines = this.shown;
    this.reading.replaceChildren();
    this.at = at;
    note.hidden = at === null || !lines.length && (up === null || !this.dots.length);
    if (note.hidden) return;
    if (!lines.length) return this.readDot(plot, note, at, up);
    const {x: [a, b], y: [c, d]} = this.view, {left, top, bottom, width, height} = this.box;
    const wanted = a + at * (b - a);
    const found = lines.map(([name, one]) => ({name, color: one.color, point: one.points.reduce((best, point) => Math.abs(point[0] - wanted) < Math.abs(best[0] - wanted) ? point : best)}));
    const nearest = found.map(each => each.point[0]).reduce((best, u) => Math.abs(u - wanted) < Math.abs(best - wanted) ? u : best);
    const px = left + (nearest - a) / (b - a) * width;
    this.reading.append(make("svg:line", {x1: px, x2: px, y1: top, y2: bottom}));
    found.sort((one, other) => other.point[1] - one.point[1]);
    note.replaceChildren(make("b", {}, `${this.labels[0]} ${written(this.x.value(nearest))}`));
    for (const {name, color, point} of found) {
      const py = bottom - (point[1] - c) / (d - c) * height;
      if (py >= top && py <= bottom) this.reading.append(make("svg:circle", {cx: left + (point[0] - a) / (b - a) * width, cy: py, r: 3, fill: color}));
      note.append(make("span", {}, make("i", {style: `background:${color}`}), `${name}: ${written(this.y.value(point[1]))}`));
    }
    this.put(plot, note, px);
  }

  /* Say where the nearest dot is. */
  readDot(plot, note, at, v) {
    const {x: [a, b], y: [c, d]} = this.view, {left, bottom, width, height} = this.box;
    const far = ({at: [p, q]}) => Math.hypot(((p - a) / (b - a) - at) * width, ((q - c) / (d - c) - v) * height);
    const nearest = this.dots.reduce((best, each) => far(each) < far(best) ? each : best), [p, q] = nearest.at;
    const px = left + (p - a) / (b - a) * width;
    this.reading.append(make("svg:circle", {cx: px, cy: bottom - (q - c) / (d - c) * height, r: 5, fill: "none", stroke: "currentColor"}));
    const lines = [`${this.labels[0] || "x"}: ${written(this.x.value(p))}`, `${this.labels[1] || "y"}: ${written(this.y.value(q))}`];
    note.replaceChildren(make("b", {}, make("i", {style: `background:${nearest.color}`}), nearest.name), ...lines.map(line => make("span", {}, line)));
    this.put(plot, note, px);
  }

  put(plot, note, px) {
    const edges = plot.getBoundingClientRect(), here = this.svg.getBoundingClientRect(), units = here.width / this.svg.viewBox.baseVal.width;
    const x = here.left - edges.left + plot.scrollLeft + px * units;
    note.style.left = `${Math.max(0, x + (x > edges.width / 2 + plot.scrollLeft ? -note.offsetWidth - 12 : 12))}px`;
  }
}

const place = (svg, event) => {
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const panel = panels.find(each => each.svg === svg && point.x >= each.box.left && point.x <= each.box.right && point.y >= each.box.top && point.y <= each.box.bottom);
  const {left, bottom, width, height} = panel ? panel.box : {};
  return {panel, at: panel && (point.x - left) / width, height: panel && (bottom - point.y) / height, x: point.x};
};

const listen = svg => {
  const own = panels.filter(each => each.svg === svg), plot = svg.closest(".plot");
  let drag = null, box = null;
  plot.append(make("div", {class: "values", hidden: "", role: "status"}));
  plot.tabIndex = 0;
  svg.addEventListener("pointermove", event => {
    const {panel, at, x, height} = place(svg, event);
    for (const each of own) if (each !== panel && each.at !== null) each.read(null);
    if (drag) {
      const {left, right, top, height} = drag.panel.box, to = Math.min(right, Math.max(left, x));
      for (const [key, value] of Object.entries({x: Math.min(drag.x, to), width: Math.abs(to - drag.x), y: top, height})) box.setAttribute(key, value);
    } else if (panel) panel.read(at, height);
  });
  svg.addEventListener("pointerleave", () => own.forEach(each => each.read(null)));
  svg.addEventListener("pointerdown", event => {
    const {panel, x} = place(svg, event);
    if (!panel || event.button) return;
    drag = {panel, x};
    box = make("svg:rect", {class: "chosen"});
    panel.group.append(box);
    svg.setPointerCapture(event.pointerId);
  });
  const dropped = event => {
    if (!drag) return;
    const {panel, x: from} = drag, {left, right, width} = panel.box, {x: [a, b]} = panel.view;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const [one, other] = [from, Math.min(right, Math.max(left, point.x))].sort((p, q) => p - q).map(p => a + (p - left) / width * (b - a));
    box.remove();
    drag = null;
    if (event.type === "pointerup" && (other - one) / (b - a) > 0.03) panel.show(one, other);
  };
  svg.addEventListener("pointerup", dropped);
  svg.addEventListener("pointercancel", dropped);
  svg.addEventListener("dblclick", () => own.forEach(each => each.show(0, 1)));
  plot.addEventListener("keydown", event => {
    const step = {ArrowLeft: -0.02, ArrowRight: 0.02}[event.key], factor = {"+": 0.5, "=": 0.5, "-": 2}[event.key];
    const panel = own.find(each => each.at != null) || own[0], {x: [a, b]} = panel.view;
    if (step) panel.read(Math.min(1, Math.max(0, (panel.at ?? 0.5) + step)));
    else if (factor) {
      const middle = a + (panel.at ?? 0.5) * (b - a), half = factor * (b - a) / 2;
      panel.show(middle - half, middle + half);
    } else if (event.key === "0") own.forEach(each => each.show(0, 1));
    else if (event.key === "Escape") own.forEach(each => each.read(null));
    else return;
    event.preventDefault();
  });
};

const switches = () => {
  const colors = new Map();
  for (const panel of panels) for (const [name, one] of panel.series) if (one.color && !colors.has(name)) colors.set(name, one.color);
  if (colors.size < 2) return;
  const keys = new Map([...document.querySelectorAll("[data-key]")].map(each => [each.dataset.key, each.getAttribute("style")]));
  const bar = make("div", {class: "switches", role: "group", "aria-label": "runs that are shown"});
  for (const [name, color] of colors) {
    const button = make("button", {type: "button", "aria-pressed": "true"}, make("i", {style: keys.get(name) || `background:${color}`}), name);
    button.addEventListener("click", () => {
      if (!off.delete(name)) off.add(name);
      button.setAttribute("aria-pressed", String(!off.has(name)));
      for (const element of document.querySelectorAll("[data-series]")) if (element.dataset.series === name && !element.matches("tr")) element.classList.toggle("off", off.has(name));
      for (const panel of panels) if (panel.series.has(name)) panel.show(...panel.view.x);
    });
    bar.append(button);
  }
  document.querySelector("header").after(bar);
};

const enlarged = figure => {
  const plot = figure.querySelector(".plot"), dialog = make("dialog", {"aria-label": figure.querySelector("h3").textContent});
  const whole = make("button", {type: "button", class: "whole"}, "Show all"), large = make("button", {type: "button"}, "Enlarge"), close = make("button", {type: "button"}, "Close");
  const tools = make("div", {class: "tools"}, whole, large);
  whole.addEventListener("click", () => panels.filter(each => plot.contains(each.svg)).forEach(each => each.show(0, 1)));
  large.addEventListener("click", () => { dialog.append(close, plot); dialog.showModal(); });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => tools.after(plot));
  plot.before(tools);
  figure.append(dialog);
};

for (const svg of document.querySelectorAll("svg[data-panels]")) {
  JSON.parse(svg.dataset.panels).forEach((spec, i) => {
    const panel = new Panel(svg, svg.querySelector(`[data-panel="${i}"]`), spec);
    if (panel.zoomed) panels.push(panel);
  });
  if (panels.some(each => each.svg === svg)) listen(svg);
}
document.querySelectorAll("figure:not(.absent)").forEach(enlarged);
switches();
document.documentElement.classList.add("scripted");
})();
