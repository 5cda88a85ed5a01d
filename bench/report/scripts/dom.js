// Small helpers for the document. Whatever comes from the data goes in as text, never as markup.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function tableOf(heads, rows, label) {
  const body = rows.map((row) => element("tr", {}, row.map((cell, place) => {
    if (!place) return element("th", { scope: "row" }, cell);
    return element("td", {}, cell);
  })));
  return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
    element("table", { class: "small" },
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, body)));
}

/** A command or a call, with a button that copies it. */
function copyable(text, what) {
  const code = element("code", {}, text);
  const said = element("span", { role: "status" });
  const button = element("button", { type: "button", "aria-label": `Copy ${what}`, onclick: async () => {
    said.textContent = (await copied(code)) ? "copied" : "select it and copy";
  } }, "Copy");
  return element("div", { class: "copyable" }, element("pre", { tabindex: 0, "aria-label": what }, code), button, said);
}

async function copied(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(code); // pages from a file may not write to the clipboard
    return document.execCommand("copy");
  }
}

const collator = new Intl.Collator("en", { numeric: true });

/** Order of two values, missing ones last whichever way. */
function ordered(a, b, down) {
  const missing = (value) => value === null || value === undefined || value === "" || value === "-";
  if (missing(a) || missing(b)) return missing(a) - missing(b);
  const difference = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
  return down ? -difference : difference;
}

/** Makes a column head a button that sorts; `sort` gets whether the largest come first. */
function sortable(head, sort) {
  const button = element("button", { type: "button" }, ...head.childNodes);
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sort(down);
  });
}

/** Tables of the page itself, with `data-v` for what their text does not sort by. */
function makeSortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => sortable(head, (down) => {
    const key = (row) => {
      const cell = row.cells[column], value = cell.dataset.v ?? cell.textContent.trim();
      return value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value;
    };
    const body = table.tBodies[0];
    body.append(...Array.from(body.rows).sort((a, b) => ordered(key(a), key(b), down)));
  }));
}
