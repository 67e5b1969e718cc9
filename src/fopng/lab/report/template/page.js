"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map();
let isolated = "";

// Light and dark: the system's choice until the reader makes one.
const kept = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
  set: value => { try { localStorage.setItem("theme", value); } catch { /* a page from a file may keep nothing */ } } };
const dark = () => root.dataset.theme === "dark";
function colour(theme) {
  root.dataset.theme = theme;
  for (const box of drawn.keys()) draw(box);
}
root.dataset.theme = kept.get() || (system.matches ? "dark" : "light");
system.addEventListener("change", () => { if (!kept.get()) colour(system.matches ? "dark" : "light"); });
document.getElementById("theme").addEventListener("click", () => {
  const theme = dark() ? "light" : "dark";
  kept.set(theme);
  colour(theme);
});

// Charts: drawn when they come into view, as wide as there is room.
function config(small) {
  const of = name => getComputedStyle(root).getPropertyValue(name).trim(), size = small ? 11 : 12;
  const text = { labelColor: of("--faint"), titleColor: of("--ink"), labelFontSize: size, titleFontSize: size, titleFontWeight: "normal" };
  return {
    font: "system-ui, sans-serif", background: null, view: { stroke: null },
    axis: { ...text, labelFlush: false, gridColor: of("--line"), domainColor: of("--line"), tickColor: of("--line") }, axisBand: { grid: false },
    header: { labelColor: of("--ink"), labelFontSize: size }, legend: { ...text, disable: true },
  };
}
function fitted(specification, width) {
  const chart = structuredClone(specification);
  if (chart.facet) {
    chart.columns = Math.max(1, Math.floor((width - 40) / (chart.spec.width + 22)));
  } else if (chart.width === 560) {
    chart.width = "container";
    if (width < 480 && chart.height > 260) chart.height = 260;
  }
  return chart;
}
async function draw(box) {
  const width = box.clientWidth;
  drawn.get(box)?.finalize();
  const options = { ast: true, renderer: "svg", config: config(width < 480), tooltip: { theme: dark() ? "dark" : "light" },
    actions: { export: true, source: false, compiled: false, editor: false }, downloadFileName: box.id };
  const result = await window.vegaEmbed(box, fitted(data.charts[box.id], width), options);
  drawn.set(box, result);
  result.view.addEventListener("click", (event, item) => isolate(item?.datum?.method ?? ""));
  if (isolated) result.view.signal("isolated", isolated).runAsync();
}
const watcher = new IntersectionObserver(seen => {
  for (const entry of seen) if (entry.isIntersecting) {
    watcher.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "600px" });
for (const box of document.querySelectorAll(".chart")) watcher.observe(box);
let waiting, before = innerWidth;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (innerWidth !== before) { before = innerWidth; for (const box of drawn.keys()) draw(box); } }, 200);
});
addEventListener("beforeprint", () => { for (const box of document.querySelectorAll(".chart")) if (!drawn.has(box)) draw(box); });

// A click isolates a method everywhere; another one, or one beside the lines, shows all again.
function isolate(method) {
  isolated = method === isolated ? "" : method;
  for (const button of document.querySelectorAll("[data-pick]")) button.setAttribute("aria-pressed", button.dataset.pick === isolated);
  for (const row of document.querySelectorAll("tr[data-method]")) row.classList.toggle("dim", isolated !== "" && row.dataset.method !== isolated);
  for (const { view } of drawn.values()) view.signal("isolated", isolated).runAsync();
}
for (const button of document.querySelectorAll("[data-pick]")) button.addEventListener("click", () => isolate(button.dataset.pick));

// Tables sort by a click on a heading, each part of one by itself; what is no number stays last.
const compare = new Intl.Collator("en", { numeric: true }).compare;
function sort(heading) {
  const table = heading.closest("table"), column = heading.cellIndex;
  const value = row => row.cells[column].dataset.value === undefined ? null : Number(row.cells[column].dataset.value);
  const numbers = [...table.querySelectorAll("tr[data-method]")].some(row => value(row) !== null);
  const was = heading.ariaSort, down = was ? was === "ascending" : numbers;
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter(row => row.dataset.method !== undefined);
    rows.sort((a, b) => {
      if (!numbers) return (down ? -1 : 1) * compare(a.cells[column].textContent, b.cells[column].textContent);
      const [x, y] = [value(a), value(b)];
      return x === null ? (y === null ? 0 : 1) : y === null ? -1 : down ? y - x : x - y;
    });
    body.append(...rows);
  }
}
for (const button of document.querySelectorAll("thead th button")) button.addEventListener("click", () => sort(button.parentElement));

// Runs: what is behind a line, as text.
function element(name, text, ...children) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}
function behind(line) {
  const row = (kind, cells) => element("tr", null, ...cells.map(cell => element(kind, cell)));
  const scroll = element("div", null, element("table", null, row("th", line.columns), ...line.rows.map(cells => row("td", cells))));
  scroll.className = "scroll";
  return [element("pre", line.command), scroll, ...line.places.map(place => element("p", place))];
}
const dialog = document.querySelector("dialog");
for (const button of document.querySelectorAll("[data-line]")) button.addEventListener("click", () => {
  dialog.querySelector("h2").textContent = button.dataset.line;
  dialog.lastElementChild.replaceChildren(...behind(data.lines[button.dataset.section][button.dataset.line]));
  dialog.showModal();
});
for (const list of document.querySelectorAll("[data-runs]")) list.closest("details").addEventListener("toggle", () => {
  const lines = Object.entries(data.lines[list.dataset.runs]);
  list.replaceChildren(...lines.map(([label, line]) => element("li", null, element("bdi", label), element("pre", line.command))));
}, { once: true });
