"use strict";
const table = document.getElementById("table");
const body = table.tBodies[0];
const rows = Array.from(body.rows);
const texts = rows.map((row) => row.textContent.toLowerCase());
const shown = document.getElementById("shown");
document.getElementById("filter").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  rows.forEach((row, i) => {
    row.hidden = !words.every((word) => texts[i].includes(word));
    count += row.hidden ? 0 : 1;
  });
  shown.textContent = `${count} of ${rows.length} rows.`;
});
table.tHead.querySelectorAll("th").forEach((head, column) => {
  if (!head.querySelector("button")) return;
  head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.v;
    const order = (a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === ""); // missing numbers last, whichever way
      const difference = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -difference : difference;
    };
    body.append(...Array.from(body.rows).sort(order));
  });
});
