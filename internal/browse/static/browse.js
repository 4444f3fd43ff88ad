// Live updates, sorted tables, search in a log, and keys. Every page can be read without it.
"use strict";
const most = 5000; // lines that a log keeps
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const status = document.getElementById("connection");
const say = (text) => { if (status && status.textContent !== text) status.textContent = text; };

// HTML of the server has no script, and the policy of the page would not run one.
function apply(update) {
  const target = document.getElementById(update.target);
  if (!target) return;
  if (!update.append) {
    const checked = new Set(all("input:checked", target).map((box) => box.value));
    const here = target.querySelector("tr.here")?.dataset.key;
    const focused = target.contains(document.activeElement) ? document.activeElement.getAttribute("href") || document.activeElement.value : "";
    target.innerHTML = update.html;
    for (const box of all("input[type=checkbox]", target)) box.checked = checked.has(box.value);
    if (here) all("tr", target).find((row) => row.dataset.key === here)?.classList.add("here");
    if (focused) all("a, input", target).find((e) => e.getAttribute("href") === focused || e.value === focused)?.focus();
    const table = target.closest("table[data-sort]");
    if (table?.sorted) sort(table, table.sorted.column, table.sorted.down);
    all("table[data-sort]", target).forEach(sortable);
    return;
  }
  if (update.reset) target.replaceChildren();
  const before = target.childElementCount;
  target.insertAdjacentHTML("beforeend", update.html);
  [...target.children].slice(before).forEach(mark);
  while (target.childElementCount > most) target.firstElementChild.remove();
  if (document.querySelector("[data-follow]")?.checked) target.scrollTop = target.scrollHeight;
}

// A browser has few connections for one server: only a page that is seen holds one.
let source = null, ended = false;
function connect() {
  const path = document.body.dataset.live;
  if (!path || source || ended || document.hidden) return;
  source = new EventSource(path);
  source.onopen = () => say("live");
  source.onmessage = (event) => apply(JSON.parse(event.data));
  source.addEventListener("end", () => { ended = true; source.close(); say("ended"); });
  source.onerror = () => say(source.readyState === EventSource.CLOSED ? "not connected: reload the page" : "connecting");
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) connect();
  else if (source) { source.close(); source = null; say("paused"); }
});

function sort(table, column, down) {
  table.sorted = { column, down };
  const value = (row) => row.cells[column]?.dataset.value ?? row.cells[column]?.textContent.trim() ?? "";
  const rows = [...table.tBodies[0].rows].filter((row) => row.cells.length > column);
  rows.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, i) => {
    if (i === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending"); else cell.removeAttribute("aria-sort");
  });
}
function sortable(table) {
  [...(table.tHead?.rows[0].cells ?? [])].forEach((cell, i) => {
    if (cell.querySelector("button, .unseen")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    button.addEventListener("click", () => sort(table, i, table.sorted?.column === i ? !table.sorted.down : cell.classList.contains("n")));
    cell.append(button);
  });
}

const search = document.querySelector("[data-log-search]");
function mark(line) {
  const want = search?.value ?? "";
  const hit = want !== "" && line.textContent.toLowerCase().includes(want.toLowerCase());
  line.classList.toggle("hit", hit);
  line.classList.toggle("other", want !== "" && !hit);
}
search?.addEventListener("input", () => all(".log li").forEach(mark));

function step(by) {
  const rows = all("table.rows tbody tr[data-key]");
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.classList.contains("here"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))];
  rows.forEach((row) => row.classList.toggle("here", row === next));
  next.querySelector("a")?.focus();
  next.scrollIntoView({ block: "nearest" });
}
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing) { if (event.key === "Escape") event.target.blur(); return; }
  const keys = { "/": () => document.querySelector("[data-search]")?.focus(), j: () => step(1), k: () => step(-1), g: () => location.assign("/"), t: () => location.assign("/trials") };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

all("table[data-sort]").forEach(sortable);
all(".log:not(.whole)").forEach((log) => { log.scrollTop = log.scrollHeight; });
connect();
