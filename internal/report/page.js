"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => {
        const cell = row.cells[at], key = cell.dataset.key;
        return { row, none: key === "none", key: key === undefined ? cell.textContent.trim() : Number(key) };
      });
      rows.sort((a, b) => {
        if (a.none || b.none) return a.none - b.none; // missing values stay last
        if (typeof a.key === "number" && typeof b.key === "number") return sign * (a.key - b.key);
        return sign * String(a.key).localeCompare(String(b.key), undefined, { numeric: true });
      });
      body.append(...rows.map((each) => each.row));
    });
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
