// "Which one for my problem?": the nearest measured problems, the answer there, and the call to paste.

const SIZES = ["batch_size", "num_heads_q", "num_heads_kv", "seqlen_q", "seqlen_k", "head_dim"];
const KINDS = ["mask", "dtype", "direction"];
const OTHER_KIND = 100; // one other mask, dtype or direction is further away than any size

class Which {
  constructor(data, open) {
    Object.assign(this, { data, open, form: document.getElementById("problem"), answer: document.getElementById("answer") });
    for (const name of KINDS) {
      const values = [...new Set(data.problem(name))].sort();
      this.form.elements[name].append(...values.map((value) => element("option", { value }, value)));
    }
    const timed = data.best("best");
    const cells = timed.length ? timed : data.cells.cell_key.slice(0, 1).map((_, i) => i);
    if (cells.length) {
      const usual = cells.reduce((a, b) => (data.field("seqlen_k", b) > data.field("seqlen_k", a) ? b : a));
      for (const name of [...SIZES, ...KINDS]) this.form.elements[name].value = data.field(name, usual);
    }
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
    });
  }

  find() {
    const { data } = this;
    const asked = Object.fromEntries([...SIZES, ...KINDS].map((name) => [name, this.form.elements[name].value]));
    const near = data.best("best").map((i, place) => ({ i, place, away: this.distance(asked, i) }))
      .sort((a, b) => a.away - b.away || this.special(a.i) - this.special(b.i) || b.i - a.i).slice(0, 3);
    if (!near.length) {
      this.answer.replaceChildren(element("p", {}, "Nothing was timed in these runs, so there is no answer."));
      return;
    }
    const [first, ...others] = near;
    this.answer.replaceChildren(...this.told(asked, first), others.length ? element("details", {},
      element("summary", {}, "The next nearest"), ...others.flatMap((one) => this.told(asked, one, "h4"))) : "");
  }

  distance(asked, i) {
    const sizes = SIZES.map((name) => Math.abs(Math.log2(this.data.field(name, i) / Math.max(1, Number(asked[name])))));
    const kinds = KINDS.filter((name) => this.data.field(name, i) !== asked[name]).length;
    return sizes.reduce((sum, one) => sum + one, OTHER_KIND * kinds);
  }

  /** In how many ways that the form does not ask for a problem is not the usual one. */
  special(i) {
    const field = (name) => this.data.field(name, i);
    return [field("head_dim_v") !== field("head_dim"), field("scale") !== null, field("distribution") !== "normal",
      field("seed") !== 0].filter(Boolean).length;
  }

  told(asked, { i, place }, heading = "h3") {
    const { data } = this;
    const other = [...SIZES, ...KINDS].filter((name) => String(data.field(name, i)) !== asked[name])
      .map((name) => `${name} ${data.field(name, i)} instead of ${asked[name]}`);
    const kinds = KINDS.some((name) => data.field(name, i) !== asked[name]);
    const key = data.field("key", i);
    const title = other.length ? `Nearest measured: ${key}` : `Measured: ${key}`;
    const parts = [element(heading, {}, title)];
    if (other.length) parts.push(element("p", { class: kinds ? "note" : null }, `It has ${other.join(", ")}.`));
    parts.push(element("p", { class: "answer" }, this.sentence(i, place)));
    if (data.runs.length > 1) parts.push(element("p", {}, `Run ${data.runs[data.column("run")[i]].id}, ${this.machine(i)}.`));
    const cells = [...data.ofProblem.get(data.problemOf(i))];
    const [latency, against] = [data.titled.latency, data.titled["against fastest"]];
    const time = (cell) => (data.column("sound")[cell] ? data.column("latency_ms")[cell] : null);
    cells.sort((a, b) => ordered(time(a), time(b)));
    parts.push(tableOf(["implementation", "status", "latency", "interval, ms", "against fastest", "peak", "error"], cells.map((cell) => [
      element("button", { type: "button", class: "record", onclick: () => this.open(cell) }, data.column("implementation")[cell]),
      data.text(cell, data.titled.status), data.text(cell, latency), data.interval(cell), data.text(cell, against),
      data.text(cell, data.titled.peak), data.text(cell, data.titled.error),
    ]), "Everything measured on this problem"));
    const call = data.best("call")[place];
    const name = data.column("implementation")[i];
    if (call) parts.push(element("p", {}, `The call of ${name}:`), copyable(call, "the call"));
    else parts.push(element("p", {}, `There is no ready call for ${name}; attention-bench list implementations says what it is.`));
    parts.push(element("p", {}, "Measure it again:"), copyable(data.command(i), "the command"));
    return parts;
  }

  machine(i) {
    const { keys, values } = this.data.families;
    return values[this.data.column("family")[i]][keys.indexOf("machine")];
  }

  sentence(i, place) {
    const { data } = this;
    const [next, said, clear, verdict] = ["next", "said", "clear", "verdict"].map((name) => data.best(name)[place]);
    const name = data.column("implementation")[i];
    const time = `${data.text(i, data.titled.latency)} ${data.interval(i)}`;
    const scope = Number(data.text(i, data.titled.processes)) > 1 ? "across processes" : "within run";
    if (next === null) return `Only ${name} has a time that can be believed: ${time} ms, ${scope}.`;
    const rival = data.column("implementation")[next];
    const ratio = said ? `${rival} takes ${said} of its time` : `no round timed ${rival} with it`;
    const both = `${name} and ${rival}`;
    const words = { UNCHANGED: `${both} are the SAME within ${this.data.margin}`,
      UNCLEAR: `Which of ${both} is faster by more than ${this.data.margin} is UNCLEAR` }[verdict];
    const found = words ?? (clear ? `${name} is fastest` : `${both} cannot be told apart`);
    return `${found}: ${clear && !words ? "" : `${name} `}${time} ms, ${scope}; ${ratio}.`;
  }
}
