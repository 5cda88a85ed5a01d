// The charts: which rows each draws, what it cannot draw and why, and the views of Vega.

const RATES = new Set(["tflops", "tflops_dense", "tflops_halved", "tflops_with_softmax", "roof_fraction", "peak_fraction"]);
const EXACT = new Set(["peak_bytes", "workspace_bytes", "output_bytes", "mask_bytes", "saved_bytes", "backward_peak_bytes",
  "reserved_bytes"]);
const SHORT = {
  verified: "not timed", incorrect: "WRONG", unsupported: "unsupported", unavailable: "unavailable",
  out_of_memory: "no memory", timeout: "time-out", crashed: "crashed", error: "error", ok: "impossible",
};
const MAX_NUMBERS = 300;
const EMBED = { renderer: "svg", actions: false, tooltip: { theme: "page" } };

class Charts {
  constructor(data, open) {
    Object.assign(this, { data, open, specifications: parsed("specifications"), choices: parsed("choices") });
    this.all = Array.from(document.querySelectorAll("figure[data-chart]"), (figure) => this.made(figure));
    this.watch = new IntersectionObserver((entries) => {
      for (const entry of entries) this.of(entry.target).visible = entry.isIntersecting;
      this.draw();
    }, { rootMargin: "200px" });
    for (const chart of this.all) this.watch.observe(chart.figure);
    this.work = Promise.resolve();
  }

  of(figure) {
    return this.all.find((chart) => chart.figure === figure);
  }

  made(figure) {
    const name = figure.dataset.chart;
    const known = this.choices[name] ?? [];
    const measured = known.filter((choice) => this.data.has(choice.key));
    const choices = measured.length ? measured : known.slice(0, 1); // which then lists why there is nothing
    const chart = { name, figure, choice: choices[0], stale: true, visible: false, view: null, layout: "" };
    chart.part = (query) => figure.querySelector(query);
    const select = chart.part(".choice");
    if (select) {
      for (const option of Array.from(select.options)) {
        if (!choices.some((choice) => choice.key === option.value)) option.remove();
      }
      select.parentElement.hidden = choices.length < 2;
      select.addEventListener("change", () => {
        chart.choice = choices.find((choice) => choice.key === select.value);
        chart.stale = true;
        this.draw();
      });
    }
    chart.part(".numbers").addEventListener("toggle", () => this.numbers(chart));
    return chart;
  }

  /** Something was chosen: with `legendOnly` the rows stay as they are. */
  changed(families, legendOnly) {
    this.families = families;
    for (const chart of this.all) {
      if (!legendOnly) chart.stale = true;
      else if (chart.view) chart.view.signal("chosen", families.chosen).runAsync();
    }
    if (!legendOnly) this.draw();
  }

  /** Draws what is on the screen first, and the rest when nothing else is to be done. */
  draw() {
    this.work = this.work.then(async () => {
      const seen = this.all.filter((one) => one.stale && one.visible);
      for (const chart of seen) chart.room = chart.figure.clientWidth; // before a change, after which it takes a layout
      for (const chart of seen) await this.drawOne(chart);
      const rest = this.all.some((one) => one.stale);
      document.documentElement.dataset.drawn = rest ? "visible" : "all";
      if (rest) this.later ??= setTimeout(() => this.drawNext(), 60);
    });
    return this.work;
  }

  drawNext() {
    this.later = null;
    this.work = this.work.then(async () => {
      const next = this.all.find((one) => one.stale);
      if (next) {
        next.room = next.figure.clientWidth;
        await this.drawOne(next);
      }
    });
    this.draw();
  }

  async drawOne(chart) {
    chart.stale = false;
    const rows = this.rows(chart);
    const { figure, view } = chart;
    figure.dataset.rows = rows.drawn.length;
    const banded = rows.drawn.some((row) => row.lo > 0);
    const layout = JSON.stringify([rows.columns, rows.size, rows.step, chart.choice?.key, banded]);
    if (!rows.drawn.length) { // an empty logarithmic axis has no extent
      view?.finalize();
      chart.view = null;
    } else if (view && chart.layout === layout) {
      await view.data("cells", rows.drawn).runAsync();
    } else {
      await this.embed(chart, rows);
      chart.layout = layout;
    }
    this.describe(chart, rows);
  }

  async embed(chart, rows) {
    const specification = structuredClone(this.specifications[chart.name]);
    specification.datasets = { cells: rows.drawn };
    if (rows.columns) {
      specification.columns = rows.columns;
      Object.assign(specification.spec, rows.size);
      this.retitle(specification.spec, chart.choice?.title);
      if (chart.choice && !rows.drawn.some((row) => row.lo > 0)) specification.spec.layer.shift(); // the band
    } else specification.width = { step: rows.step };
    chart.view?.finalize();
    const place = chart.part(".plot");
    chart.view = (await vegaEmbed(place, specification, EMBED)).view;
    await chart.view.signal("chosen", this.families.chosen).runAsync();
    const wide = place.scrollWidth > place.clientWidth; // then it scrolls, and the keyboard has to reach it
    for (const [name, value] of Object.entries({ tabindex: 0, role: "group", "aria-label": chart.part("h3").textContent })) {
      if (wide) place.setAttribute(name, value);
      else place.removeAttribute(name);
    }
    chart.view.addEventListener("click", (event, item) => {
      const kind = item?.mark?.marktype;
      if (["symbol", "rect", "text"].includes(kind) && Number.isInteger(item.datum?.i)) this.open(item.datum.i);
    });
  }

  /** The title of the vertical axis is that of the quantity chosen. */
  retitle(part, title) {
    if (!title) return;
    for (const layer of part.layer ?? [part]) {
      if (layer.encoding?.y?.axis) layer.encoding.y.axis.title = title;
    }
  }

  rows(chart) {
    const { shown, count } = this.families.panels();
    shown.forEach((panel, order) => Object.assign(panel, { order }));
    if (chart.name === "heat_map") {
      const tiles = this.tiles(shown);
      const lengths = new Set(tiles.drawn.map((row) => row.x)).size;
      const step = Math.max(72, Math.min(110, Math.floor((chart.room - 190) / Math.max(1, lengths))));
      return { ...tiles, step, panels: shown.length, count };
    }
    const found = chart.name === "roofline" ? this.roofline(shown) : this.lines(chart, shown);
    const room = chart.room - 90;
    const columns = Math.max(1, Math.min(3, shown.length, Math.floor(room / 300)));
    const width = Math.max(200, Math.min(640, Math.floor(room / columns) - 22));
    const size = { width, height: Math.round(Math.max(190, width * 0.55)) };
    return { ...found, columns, size, panels: shown.length, count };
  }

  /** Points of a chart against length; what has no place on a logarithmic axis is listed instead. */
  lines(chart, panels) {
    const { data } = this;
    const key = chart.choice?.key;
    const drawn = [], undrawn = [];
    if (!key) return { drawn, undrawn };
    const [values, sound, status] = [data.column(key), data.column("sound"), data.column("status")];
    const timed = !EXACT.has(key) && !key.startsWith("out_");
    for (const panel of panels) {
      for (const i of [...panel.cells].sort((a, b) => data.field("seqlen_k", a) - data.field("seqlen_k", b))) {
        const y = values[i];
        const why = timed && status[i] === "ok" && !sound[i] ? "flagged impossible" : this.unplaced(i, key, y);
        if (why) undrawn.push({ i, panel: panel.title, why });
        else drawn.push(this.point(i, panel, y, chart.choice));
      }
    }
    return { drawn, undrawn };
  }

  /** Why a value cannot be drawn on a logarithmic axis; empty if it can. */
  unplaced(i, key, y) {
    if (typeof y === "number") return y > 0 ? "" : `is ${y}, which a logarithmic axis cannot show`;
    if (y !== null) return `is ${y}`;
    const place = this.data.heads.findIndex((head) => head.key === key);
    return (place >= 0 && this.data.reason(i, place)) || this.data.column("reason")[i] || "no such number";
  }

  point(i, panel, y, choice) {
    const { data } = this;
    const [lo, hi, middle] = ["latency_lo_ms", "latency_hi_ms", "latency_ms"].map((name) => data.column(name)[i]);
    const row = { i, implementation: data.column("implementation")[i], panel: panel.title, order: panel.order,
      x: data.field("seqlen_k", i), y,
      length: String(data.field("seqlen_k", i)), value: this.said(y, choice.key), said: "one number" };
    if (EXACT.has(choice.key)) row.said = "exact";
    else if (choice.band && lo > 0) {
      const rate = RATES.has(choice.key);
      Object.assign(row, rate ? { lo: (y * middle) / hi, hi: (y * middle) / lo } : { lo, hi });
      row.said = `[${this.said(row.lo, choice.key)}, ${this.said(row.hi, choice.key)}]`;
    } else if (choice.band) row.said = `not drawn: the latency's is ${data.interval(i)} ms`;
    else if (choice.key.startsWith("latency")) row.said = "another clock";
    return row;
  }

  said(value, key) {
    if (key.endsWith("_ms")) return shown(value, "ms");
    if (key.endsWith("_bytes")) return shown(value, "bytes");
    if (key.endsWith("_fraction") || key === "out_share") return shown(value, "percent");
    return shown(value, key === "out_max_abs" || key === "out_rmse" ? "error" : "number");
  }

  roofline(panels) {
    const { data } = this;
    const chart = { choice: { key: "tflops", title: "" } };
    const found = this.lines(chart, panels);
    for (const row of found.drawn) {
      row.x = data.column("flop_per_byte")[row.i];
      const share = data.column("roof_fraction")[row.i];
      row.said = share === null ? "no roof was measured in its run" : `${shown(share, "percent")} of its roof`;
    }
    const dtype = found.drawn.length ? data.field("dtype", found.drawn[0].i) : "";
    const measured = found.drawn.map((row) => data.column("run")[row.i]).filter((run) => data.runs[run].ceilings?.flop_per_s[dtype]);
    const ceilings = measured.length ? data.runs[Math.max(...measured)].ceilings : null;
    const why = (row) => {
      if (!ceilings) return "this run measured no ceiling in its dtype";
      return row.x > 0 ? "" : "how many bytes it needs is not known";
    };
    found.undrawn.push(...found.drawn.filter(why).map((row) => ({ i: row.i, panel: row.panel, why: why(row) })));
    found.drawn = found.drawn.filter((row) => !why(row));
    if (!found.drawn.length) return found;
    const intensities = found.drawn.map((row) => row.x);
    const peak = ceilings.flop_per_s[dtype];
    const memory = ceilings.memory_bytes_per_s ?? ceilings.bytes_per_s;
    const [low, high] = [Math.min(...intensities, peak / memory / 4) / 1.15, Math.max(...intensities, (peak / memory) * 4) * 1.15];
    const bent = (rate) => [low, peak / rate, high].map((x) => [x, Math.min(peak, x * rate) / 1e12]);
    const single = ceilings.flop_per_s_one_thread?.[dtype];
    const roofs = { memory: bent(memory) };
    if (ceilings.bytes_per_s > memory) roofs.cache = bent(ceilings.bytes_per_s);
    if (single) roofs["one thread"] = [[low, single / 1e12], [high, single / 1e12]];
    const places = new Map(found.drawn.map((row) => [row.panel, row.order]));
    for (const [panel, order] of places) {
      for (const [roof, points] of Object.entries(roofs)) {
        for (const [x, y] of points) found.drawn.push({ panel, order, roof, x, y });
      }
    }
    return found;
  }

  /** One tile for each panel and length: the fastest there, or why nobody is. */
  tiles(panels) {
    const { data } = this;
    const drawn = [], undrawn = [];
    for (const panel of panels) {
      const byLength = new Map();
      for (const i of panel.cells) {
        const x = data.field("seqlen_k", i);
        if (!byLength.has(x)) byLength.set(x, []);
        byLength.get(x).push(i);
      }
      for (const [x, cells] of [...byLength].sort((a, b) => a[0] - b[0])) {
        const places = cells.map((i) => data.fastestOf.get(data.problemOf(i))).filter((place) => place !== undefined);
        drawn.push(places.length ? this.won(panel, x, this.fullest(places)) : this.empty(panel, x, cells));
        for (const i of cells.filter((one) => !data.column("sound")[one])) {
          undrawn.push({ i, panel: panel.title, why: `${SHORT[data.column("status")[i]]}: ${this.why(i)}` });
        }
      }
    }
    return { drawn, undrawn };
  }

  /** Several runs may have timed parts of a problem, and times of two runs are not paired: the one with the most counts. */
  fullest(places) {
    const { data } = this;
    const timed = (place) => data.ofProblem.get(data.problemOf(data.best("best")[place])).filter((i) => data.column("sound")[i]).length;
    return places.reduce((a, b) => (timed(b) >= timed(a) ? b : a));
  }

  /** Why a cell has no time that can be believed. */
  why(i) {
    const { data } = this;
    return data.column("reason")[i] ?? data.column("flags")[i].map(([name, reason]) => `${name}, ${reason}`).join("; ");
  }

  won(panel, x, place) {
    const { data } = this;
    const [i, next, ratio, clear] = ["best", "next", "ratio", "clear"].map((name) => data.best(name)[place]);
    const implementation = data.column("implementation")[i];
    const rival = next === null ? null : data.column("implementation")[next];
    const label = next === null ? "alone" : clear ? `${shown(ratio, "number")}x` : "unclear";
    return { i, panel: panel.title, order: panel.order, x, implementation, clear: clear || next === null, label: `${implementation}\n${label}`,
      ink: clear || next === null ? data.looks[implementation].ink : "var(--fg)", who: clear || next === null ? implementation : `${implementation} or ${rival}`,
      value: data.text(i, data.titled.latency), said: next === null ? "nothing else was timed" :
        `${rival} takes ${data.best("said")[place] ?? "an unpaired time"}` };
  }

  empty(panel, x, cells) {
    const { data } = this;
    const statuses = [...new Set(cells.map((i) => SHORT[data.column("status")[i]]))];
    const reasons = [...new Set(cells.map((i) => this.why(i)).filter(Boolean))];
    return { i: cells[0], panel: panel.title, order: panel.order, x, implementation: null, clear: true, label: statuses.slice(0, 2).join("\n"),
      ink: "var(--fg)", who: "nobody", value: "-", said: reasons.join("; ") };
  }

  describe(chart, rows) {
    const { data, families } = this;
    const sentences = data.families.sentences[chart.name];
    chart.part(".family").textContent = families.subject;
    const whole = !families.width && !families.mask && rows.count <= rows.panels;
    const [first] = this.choices[chart.name] ?? [];
    const scope = [first && chart.choice.key !== first.key ? `of ${first.title}` : "",
      whole ? "" : "of all head widths and masks here"].filter(Boolean).join(", ");
    chart.part(".said").textContent = `${scope ? `Speaks ${scope}. ` : ""}${unpacked(sentences)[families.now]}`;
    const note = chart.part(".panels");
    note.hidden = rows.count <= rows.panels;
    note.textContent = `${rows.panels} of ${rows.count} panels are shown; choose a mask or a head width for the others.`;
    const undrawn = chart.part(".undrawn");
    undrawn.hidden = !rows.undrawn.length;
    const cells = rows.undrawn.length === 1 ? "cell is" : "cells are";
    undrawn.querySelector("summary").textContent = `${rows.undrawn.length} ${cells} not drawn here, with the reason`;
    undrawn.querySelector("ul").replaceChildren(...rows.undrawn.slice(0, MAX_NUMBERS).map(({ i, panel, why }) => element("li",
      {}, this.button(i), ` ${panel}, length ${data.field("seqlen_k", i)}: ${why}`)),
    ...(rows.undrawn.length > MAX_NUMBERS ? [element("li", {}, `and ${rows.undrawn.length - MAX_NUMBERS} more, which the table of cells has`)] : []));
    chart.part(".plot").hidden = !rows.drawn.length;
    chart.rows = rows.drawn;
    this.numbers(chart);
  }

  button(i) {
    return element("button", { type: "button", class: "record", onclick: () => this.open(i) },
      this.data.column("implementation")[i]);
  }

  /** The rows of a chart as a table, made when it is opened. */
  numbers(chart) {
    const details = chart.part(".numbers");
    if (!details.open || !chart.rows) return;
    const points = chart.rows.filter((row) => row.i !== undefined);
    const rows = points.slice(0, MAX_NUMBERS).map((row) => [this.button(row.i), row.panel, String(row.length ?? row.x),
      row.value, row.said]);
    const last = { heat_map: "against the next", roofline: "share" }[chart.name] ?? "interval";
    const heads = ["implementation", "panel", "length", "value", last];
    const left = points.length > MAX_NUMBERS ? element("p", {}, `${points.length - MAX_NUMBERS} more are in the table of cells.`) : null;
    const made = tableOf(heads, rows, `Numbers: ${chart.part("h3").textContent}`);
    details.replaceChildren(details.querySelector("summary"), made, ...(left ? [left] : []));
  }
}
