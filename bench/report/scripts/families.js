// Which problems the charts show: drop-downs that offer what was measured, and the legend.

const DIMENSIONS = {
  machine: "machine", device: "device", direction: "direction", batch_size: "batch", num_heads_q: "query heads",
  num_heads_kv: "key heads", dtype: "dtype", scale: "scale", distribution: "inputs", shape: "queries", seed: "seed",
};
const PANELS = 12;

const worded = (name, value) => {
  if (name === "scale") return value === null ? "1/√d" : String(value);
  return name === "shape" && value === "square" ? "as many as keys" : String(value);
};

class Families {
  constructor(data) {
    this.data = data;
    this.onchange = null; // called with whether the legend alone changed
    const { keys, values, timed } = data.families;
    Object.assign(this, { keys, values, timed, chosen: [], width: "", mask: "" });
    this.members = values.map(() => []);
    data.column("family").forEach((family, i) => this.members[family].push(i));
    const size = (family) => this.members[family].length;
    this.now = values.map((_, family) => family).sort((a, b) => timed[b] - timed[a] || size(b) - size(a))[0];
    this.selects = keys.map((name, place) => {
      if (new Set(values.map((value) => value[place])).size < 2) return null;
      const select = element("select", { id: `filter-${name}`, onchange: () => this.choose(place, select.value) });
      document.getElementById("family-filters").append(element("label", {}, `${DIMENSIONS[name] ?? name} `, select));
      return select;
    });
    for (const name of ["width", "mask"]) {
      document.getElementById(`panel-${name}`).addEventListener("change", (event) => {
        this[name] = event.target.value;
        this.refresh();
      });
    }
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    this.refresh();
  }

  /** Takes a value of one drop-down, and of the others what exists with it and changes least. */
  choose(place, text) {
    const current = this.values[this.now];
    const kept = (value) => value.filter((one, other) => one === current[other]).length;
    const fitting = this.values.map((value, family) => family)
      .filter((family) => JSON.stringify(this.values[family][place]) === text);
    this.now = fitting.sort((a, b) => kept(this.values[b]) - kept(this.values[a]) || this.timed[b] - this.timed[a])[0];
    this.refresh();
  }

  refresh() {
    const current = this.values[this.now];
    this.selects.forEach((select, place) => {
      if (!select) return;
      const same = (value) => value.every((one, other) => other === place || one === current[other]);
      const all = [...new Set(this.values.map((value) => value[place]))].sort((a, b) => ordered(a, b));
      const here = new Set(this.values.filter(same).map((value) => value[place]));
      const option = (value) => element("option", { value: JSON.stringify(value), selected: value === current[place] },
        worded(this.keys[place], value));
      const away = all.filter((value) => !here.has(value)).map(option);
      select.replaceChildren(...all.filter((value) => here.has(value)).map(option));
      if (away.length) select.append(element("optgroup", { label: "changes other choices too" }, away));
    });
    this.fill("width", (i) => this.data.width(i));
    this.fill("mask", (i) => this.data.field("mask", i));
    this.legend();
    this.onchange?.(false);
  }

  fill(name, value) {
    const all = [...new Set(this.members[this.now].map(value))].sort((a, b) => ordered(a, b));
    if (!all.includes(this[name])) this[name] = "";
    const options = all.map((one) => element("option", { value: one, selected: one === this[name] }, one));
    if (all.length > 1) options.unshift(element("option", { value: "", selected: !this[name] }, `all ${all.length}`));
    const select = document.getElementById(`panel-${name}`);
    select.replaceChildren(...options);
    select.disabled = all.length < 2;
  }

  legend() {
    const here = new Set(this.members[this.now].map((i) => this.data.column("implementation")[i]));
    this.chosen = this.chosen.filter((name) => here.has(name));
    const buttons = this.data.names.filter((name) => here.has(name)).map((name) => element("button", {
      type: "button", "aria-pressed": String(this.chosen.includes(name)), onclick: (event) => {
        const on = !this.chosen.includes(name);
        this.chosen = on ? [...this.chosen, name] : this.chosen.filter((other) => other !== name);
        event.currentTarget.setAttribute("aria-pressed", String(on));
        this.onchange?.(true);
      },
    }, swatch(this.data.looks[name]), name));
    const box = document.getElementById("legend");
    box.replaceChildren(box.querySelector("legend"), ...buttons);
  }

  /** The chosen cells by panel, the first twelve, and how many panels there are. */
  panels() {
    const { data } = this;
    const found = new Map();
    for (const i of this.members[this.now]) {
      const [width, mask] = [data.width(i), data.field("mask", i)];
      if ((this.width && width !== this.width) || (this.mask && mask !== this.mask)) continue;
      const title = `head_dim ${width}, ${mask}`;
      if (!found.has(title)) found.set(title, { title, width, mask, cells: [] });
      found.get(title).cells.push(i);
    }
    const single = (panel) => new Set(panel.cells.map((i) => data.field("seqlen_k", i))).size < 2;
    const all = [...found.values()].sort((a, b) => single(a) - single(b) || ordered(a.width, b.width));
    return { shown: all.slice(0, PANELS), count: all.length };
  }

  get subject() {
    const value = Object.fromEntries(this.keys.map((name, place) => [name, this.values[this.now][place]]));
    const heads = value.num_heads_q === value.num_heads_kv ? "" : `:${value.num_heads_kv}`;
    return [value.direction, value.dtype, `B=${value.batch_size}`, `H=${value.num_heads_q}${heads}`,
      value.shape === "square" ? "" : value.shape, value.distribution === "normal" ? "" : `${value.distribution} inputs`,
      value.scale === null ? "" : `scale ${value.scale}`, value.seed ? `seed ${value.seed}` : "", `on ${value.machine}`,
    ].filter(Boolean).join(", ");
  }
}

/** A bit of line with its marker. */
function swatch(look) {
  const shapes = {
    circle: "M-1,0A1,1,0,1,1,1,0A1,1,0,1,1,-1,0Z", square: "M-0.9,-0.9H0.9V0.9H-0.9Z",
    diamond: "M0,-1.2L0.9,0L0,1.2L-0.9,0Z", cross: "M-1,-0.4H-0.4V-1H0.4V-0.4H1V0.4H0.4V1H-0.4V0.4H-1Z",
    "triangle-up": "M0,-1L1,0.8H-1Z", "triangle-down": "M0,1L-1,-0.8H1Z",
    "triangle-left": "M-1,0L0.8,-1V1Z", "triangle-right": "M1,0L-0.8,1V-1Z",
  };
  const made = (tag, attributes) => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
    return part;
  };
  const picture = made("svg", { width: 42, height: 14, viewBox: "-21 -7 42 14", "aria-hidden": "true" });
  picture.append(
    made("line", { x1: -20, x2: 20, y1: 0, y2: 0, stroke: look.color, "stroke-width": 2, "stroke-dasharray": look.dash.join(" ") }),
    made("path", { d: shapes[look.shape] ?? look.shape, fill: look.color, transform: "scale(4.5)" }));
  return picture;
}
