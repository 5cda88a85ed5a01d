// The table of cells: all of them, sorted and filtered, a hundred rows at a time.

const STEP = 100;

class CellsTable {
  constructor(data, open) {
    Object.assign(this, { data, open, order: null, shown: STEP });
    this.table = document.getElementById("table");
    this.order = Array.from({ length: data.count }, (_, i) => i);
    const heads = data.heads.map((head, place) => {
      const cell = element("th", { scope: "col", title: head.about }, head.title);
      sortable(cell, (down) => this.sort(place, down));
      return cell;
    });
    this.table.tHead.append(element("tr", {}, heads));
    heads.forEach((cell, place) => cell.setAttribute("data-column", data.heads[place].title));
    document.getElementById("filter").addEventListener("input", () => this.refresh(STEP));
    document.getElementById("search").addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("more").addEventListener("click", () => this.refresh(this.shown + 5 * STEP));
    this.refresh(STEP);
  }

  sort(place, down) {
    const { data } = this;
    const numbers = data.table[place].number ? data.columnNumber(place) : null;
    const values = numbers ?? data.columnText(place);
    this.order.sort((a, b) => ordered(values[a], values[b], down) || a - b);
    this.refresh(STEP);
  }

  get texts() {
    const { data } = this;
    const places = data.heads.map((head, place) => place).filter((place) => data.heads[place].kind === "text");
    const words = (i) => places.map((place) => data.columnText(place)[i]).join(" ");
    const flags = (i) => data.column("flags")[i].flat().join(" ");
    this.kept ??= Array.from({ length: data.count }, (_, i) => `${words(i)} ${flags(i)}`.toLowerCase());
    return this.kept;
  }

  refresh(shown) {
    this.shown = shown;
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.order.filter((i) => words.every((word) => this.texts[i].includes(word))) : this.order;
    this.table.tBodies[0].replaceChildren(...found.slice(0, shown).map((i) => this.row(i)));
    const few = Math.min(shown, found.length);
    document.getElementById("shown").textContent = `${found.length} of ${this.data.count} rows${
      few < found.length ? `, the first ${few} shown` : ""}.`;
    document.getElementById("pager").hidden = few >= found.length;
  }

  row(i) {
    const { data } = this;
    const impossible = data.column("latency_ms")[i] !== null && !data.column("sound")[i] ? " impossible" : "";
    const cells = data.heads.map((head, place) => {
      const text = data.text(i, place), reason = data.reason(i, place);
      if (!place) {
        const button = element("button", { type: "button", class: "record" }, text);
        return element("th", { scope: "row" }, button);
      }
      const number = head.kind !== "text" || data.table[place].number;
      return element("td", { class: number ? `num${text === "-" ? " missing" : ""}` : null, title: reason || null }, text);
    });
    const row = element("tr", { class: data.column("status")[i] + impossible }, cells);
    row.addEventListener("click", () => this.open(i));
    return row;
  }
}
