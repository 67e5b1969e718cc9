"use strict";
document.documentElement.classList.add("js");
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (name, text, act) => {
  const element = document.createElement(name);
  element.textContent = text;
  if (act) { element.type = "button"; element.addEventListener("click", act); }
  return element;
};

// Sorting: a button in every heading; texts upwards first, numbers downwards, and what is no number last.
const valueOf = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replace(/^±\s*/, ""));
  return [text, number];
};
function sortBy(heading, column) {
  const table = heading.closest("table");
  const bodies = [...table.tBodies];
  const rowsOf = body => [...body.rows].filter(row => row.cells.length > column);
  const textual = column === 0 && bodies.some(body => rowsOf(body).some(row => isNaN(valueOf(row, 0)[1])));
  const downwards = heading.ariaSort === "none" || !heading.ariaSort ? !textual : heading.ariaSort === "ascending";
  const sign = downwards ? -1 : 1;
  for (const body of bodies) {
    const sorted = rowsOf(body).map(row => [valueOf(row, column), row]).sort(([[a, x]], [[b, y]]) =>
      textual ? sign * a.localeCompare(b) : isNaN(x) - isNaN(y) || (isNaN(x) ? 0 : sign * (x - y)));
    body.append(...sorted.map(pair => pair[1]));
  }
  for (const other of table.tHead.rows[0].cells) if (other.ariaSort) other.ariaSort = "none";
  heading.ariaSort = downwards ? "descending" : "ascending";
}
for (const heading of all("table.sortable thead th")) {
  const button = make("button", "");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  heading.ariaSort = heading.dataset.sorted || "none";
}
document.addEventListener("click", event => {
  const heading = event.target.closest("th[aria-sort]");
  if (heading && event.target.closest("button")) sortBy(heading, heading.cellIndex);
});

// The axis of a chart is fitted to the lines that are switched on. Every place in a path that is written in capitals is moved.
const NAMESPACE = "http://www.w3.org/2000/svg";
const drawn = (name, attributes, text = "") => {
  const element = document.createElementNS(NAMESPACE, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  element.textContent = text;
  return element;
};
const originals = new Map();
function remember(svg) {
  if (!originals.has(svg)) {
    const paths = all(".s path", svg).map(path => [path, path.getAttribute("d"), path.closest(".s").dataset.m]);
    originals.set(svg, { paths, grid: svg.querySelector(".grid").getAttribute("d"), ticks: all("text.y", svg) });
  }
  return originals.get(svg);
}
function niceAxis(values) {
  const least = Math.min(...values), most = Math.max(...values);
  const room = .06 * (most - least) || .5, span = most - least + 2 * room;
  const size = 10 ** Math.floor(Math.log10(span / 5));
  const step = [1, 2, 5, 10].map(factor => factor * size).find(each => span / each <= 6);
  const low = Math.max(0, Math.floor((least - room) / step + 1e-9) * step);
  const high = Math.min(100, Math.ceil((most + room) / step - 1e-9) * step);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) ticks.push(k * step);
  return { low, high, ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}
function fitAxis(svg, off) {
  if (!off.size && !originals.has(svg)) return;
  const { paths, grid, ticks } = remember(svg);
  const [left, top, right, floor, low, high] = svg.dataset.frame.split(" ").map(Number);
  const place = /([ML][\d.]+,)([\d.]+)/g;
  const shown = paths.filter(([, , method]) => !off.has(method));
  const values = shown.flatMap(([, d]) => [...d.matchAll(place)].map(found => high - (found[2] - top) / (floor - top) * (high - low)));
  all("text.y", svg).forEach(text => text.remove());
  const line = svg.querySelector(".grid");
  if (shown.length === paths.length || !values.length) {
    paths.forEach(([path, d]) => path.setAttribute("d", d));
    line.setAttribute("d", grid);
    line.after(...ticks);
    return;
  }
  const axis = niceAxis(values);
  const height = value => floor - (value - axis.low) / (axis.high - axis.low) * (floor - top);
  const moved = y => height(high - (y - top) / (floor - top) * (high - low)).toFixed(1);
  shown.forEach(([path, d]) => path.setAttribute("d", d.replace(place, (_, start, y) => start + moved(+y))));
  line.setAttribute("d", axis.ticks.map(value => `M${left},${height(value)}H${right}`).join(""));
  line.after(...axis.ticks.map(value => drawn("text", { class: "y e", x: left - 8, y: height(value) + 4.5 }, value.toFixed(axis.digits))));
}

// Switches. Without scripts rules with :has do the same; they make a page of many methods slow.
const switches = all("fieldset input");
const rules = document.head.appendChild(document.createElement("style"));
function applySwitches() {
  const off = switches.filter(input => !input.checked).map(input => input.id.slice(1));
  const every = attribute => off.map(number => `[data-${attribute}="${number}"]`).join();
  all("svg[data-frame]").forEach(svg => fitAxis(svg, new Set(off)));
  rules.textContent = off.length ? `${every("m")} { display: none; } ${every("k")} { opacity: .45; text-decoration: line-through; }` : "";
}
switches.forEach(input => input.addEventListener("change", applySwitches));
applySwitches();
for (const box of all("fieldset .options")) {
  const turn = on => () => { all("input", box).forEach(input => { input.checked = on; }); applySwitches(); };
  box.append(make("button", "all", turn(true)), make("button", "none", turn(false)));
}

// The runs behind a number.
const dialog = document.getElementById("evidence");
function showRuns(id) {
  const source = document.getElementById(id);
  const body = dialog.querySelector("div");
  dialog.querySelector("h2").textContent = source.querySelector("summary").textContent;
  body.replaceChildren(...[...source.children].slice(1).map(child => child.cloneNode(true)));
  for (const command of all("pre", body)) {
    const button = make("button", "Copy the command", () => navigator.clipboard?.writeText(command.textContent).then(
      () => { button.textContent = "Copied"; }, () => getSelection().selectAllChildren(command)));
    command.after(button);
  }
  dialog.showModal();
}
dialog.querySelector("button").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
document.addEventListener("click", event => {
  const link = event.target.closest("td a[href^='#r'], figure a[href^='#r']");
  const mark = event.target.closest(".chart [data-r]");
  if (!link && !mark) return;
  event.preventDefault();
  showRuns(link ? link.hash.slice(1) : mark.dataset.r);
});
const reveal = () => { for (let at = document.getElementById(location.hash.slice(1)); at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true; };
addEventListener("hashchange", reveal);
reveal();

// The line that is pointed at stands out in every figure of its panel.
function point(panel, id) {
  panel.classList.toggle("pointed", Boolean(id));
  all(".lit", panel).forEach(element => element.classList.remove("lit"));
  if (id) all(`[data-r="${id}"]`, panel).forEach(element => element.classList.add("lit"));
}
for (const panel of all(".panel")) {
  let now = "";
  const follow = event => {
    const id = event.target.closest("[data-r]")?.dataset.r || "";
    if (id !== now) point(panel, now = id);
  };
  panel.addEventListener("pointerover", follow);
  panel.addEventListener("focusin", follow);
  panel.addEventListener("pointerleave", () => point(panel, now = ""));
}

// Saving: the figure alone, without what is switched off; a chart in light colours, a matrix as it is shown.
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const solid = colour => {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return `rgb(${[...context.getImageData(0, 0, 1, 1).data].slice(0, 3)})`;
};
function drawnHeat(table) {
  const rows = [...table.rows], wide = 46, high = 28;
  const svg = drawn("svg", { viewBox: `0 0 ${rows[0].cells.length * wide} ${rows.length * high}` });
  rows.forEach((row, i) => [...row.cells].forEach((cell, j) => {
    const style = getComputedStyle(cell);
    if (cell.className) svg.append(drawn("rect", { x: j * wide + 1, y: i * high + 1, width: wide - 2, height: high - 2, fill: solid(style.backgroundColor) }));
    svg.append(drawn("text", { x: (j + .5) * wide, y: (i + .5) * high + 4.5, "font-size": 13, "text-anchor": "middle", fill: solid(style.color) }, cell.textContent));
  }));
  return svg;
}
function addLegend(svg, figure) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  context.font = "13px system-ui, sans-serif";
  let x = 8, y = height + 16;
  // Points are drawn as the lines of the panel's first figure are, and share its legend.
  const lender = figure.dataset.legend ? document.getElementById(figure.dataset.legend) : figure;
  for (const item of all(".legend li", lender)) {
    if (!document.getElementById(item.firstChild.htmlFor).checked) continue;
    const wide = 38 + context.measureText(item.textContent).width + 18;
    if (x > 8 && x + wide > width) { x = 8; y += 20; }
    const entry = drawn("g", { transform: `translate(${x} ${y - 6})` });
    entry.append(item.querySelector("g").cloneNode(true), drawn("text", { class: "n", x: 38, y: 10.5 }, item.textContent));
    svg.append(entry);
    x += wide;
  }
  if (y > height + 16 || x > 8) svg.setAttribute("viewBox", `0 0 ${width} ${y + 16}`);
}
function standalone(figure) {
  const source = figure.querySelector("svg.chart");
  const svg = source ? source.cloneNode(true) : drawnHeat(figure.querySelector("table"));
  if (source) {
    const copies = all("[data-m]", svg);
    all("[data-m]", source).forEach((element, index) => { if (getComputedStyle(element).display === "none") copies[index].remove(); });
    addLegend(svg, figure);
    svg.prepend(drawn("style", {}, document.getElementById("figure-style").textContent));
  }
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  svg.setAttribute("xmlns", NAMESPACE);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("font-family", "system-ui, sans-serif");
  svg.prepend(drawn("rect", { width, height, fill: source ? "#fff" : solid(getComputedStyle(document.body).backgroundColor) }));
  return { text: new XMLSerializer().serializeToString(svg), width, height };
}
function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
async function savePng(figure, scale = 3) {
  const { text, width, height } = standalone(figure);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob(blob => download(blob, `${figure.id}.png`));
}
for (const figure of all("figure")) {
  const box = make("span", "");
  box.className = "save";
  const name = figure.querySelector("h3, h4").textContent;
  for (const [kind, act] of [["SVG", () => download(new Blob([standalone(figure).text], { type: "image/svg+xml" }), `${figure.id}.svg`)], ["PNG", () => savePng(figure)]]) {
    const button = make("button", kind, act);
    button.ariaLabel = `Save as ${kind}: ${name}`;
    box.append(button);
  }
  figure.querySelector("figcaption").append(box);
}
