// The dataset: columns out of compressed JSON, and what charts, table, form and dialog ask of it.

const parsed = (id) => JSON.parse(document.getElementById(id).textContent);

const decoded = (text) => Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (char) => char.charCodeAt(0));

/** What a script of the page holds as compressed JSON. */
async function unzipped(id) {
  const bytes = decoded(document.getElementById(id).textContent);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const load = async () => new Dataset(await unzipped("dataset"));

const unpacked = (column) => column.v ?? column.at.map((place) => column.of[place]);

const summed = (steps) => {
  let total = 0;
  return steps.map((step) => (total += step));
};

class Dataset {
  constructor(content) {
    Object.assign(this, content);
    const lazily = (columns) => {
      const done = {};
      return (name) => (done[name] ??= unpacked(columns[name]));
    };
    const columns = { ...this.cells };
    this.columns = columns;
    this.table.forEach((column, place) => {
      const key = this.heads[place].key;
      if (key) columns[key] = column.number;
    });
    this.column = lazily(columns);
    this.has = (name) => name in columns && this.column(name).some((value) => value !== null);
    this.problem = lazily(this.problems);
    this.best = lazily(this.fastest);
    this.count = this.cells.cell_key.length;
    this.columnText = lazily(Object.fromEntries(this.table.map((column, place) => [place, column.text])));
    this.columnNumber = lazily(Object.fromEntries(this.table.map((column, place) => [place, column.number])));
    this.columnReason = lazily(Object.fromEntries(this.table.map((column, place) => [place, column.reason])));
    this.titled = Object.fromEntries(this.heads.map((head, place) => [head.title, place]));
    this.ofProblem = new Map(); // cells by run and problem
    for (let i = 0; i < this.count; i += 1) {
      const key = this.problemOf(i);
      if (!this.ofProblem.has(key)) this.ofProblem.set(key, []);
      this.ofProblem.get(key).push(i);
    }
    this.fastestOf = new Map(this.best("best").map((cell, place) => [this.problemOf(cell), place]));
  }

  /** Reads what the dialog of a record alone shows, once. */
  detailed() {
    this.wanted ??= unzipped("details").then(({ samples, cells }) => {
      this.samples = samples;
      Object.assign(this.columns, cells);
    });
    return this.wanted;
  }

  problemOf(i) {
    return `${this.column("run")[i]}/${this.column("problem")[i]}`;
  }

  /** A field of the problem of cell i. */
  field(name, i) {
    const values = name === "key" ? this.problems.key : this.problem(name);
    return values[this.column("problem")[i]];
  }

  width(i) {
    const [k, v] = [this.field("head_dim", i), this.field("head_dim_v", i)];
    return k === v ? String(k) : `${k}:${v}`;
  }

  /** What the table shows for cell i in a column. */
  text(i, place) {
    const head = this.heads[place];
    if (head.kind === "text") return this.columnText(place)[i];
    const value = this.columnNumber(place)[i];
    return value === null ? "-" : shown(value, head.kind);
  }

  reason(i, place) {
    return this.columnReason(place)[i];
  }

  interval(i) {
    return this.text(i, this.titled.interval);
  }

  command(i) {
    const run = this.runs[this.column("run")[i]];
    const problem = this.column("problem")[i];
    const chosen = run.selects ? `-p ${this.problems.quoted[problem]}` : this.problems.described[problem];
    return `${run.command} -i ${this.quoted[this.column("implementation")[i]]} ${chosen}`;
  }

  /** Samples of cell i in milliseconds per call, once they are read: raw with the process of each, or quantiles. */
  samplesOf(i) {
    const scale = 1e6 * (this.column("calls_per_sample")[i] ?? 1);
    if (this.samples.kind === "raw") {
      const steps = this.samples.samples_ns[i];
      if (!steps) return null;
      this.processes ??= unpacked(this.samples.processes);
      const raw = summed(steps);
      return { raw, values: raw.map((ns) => ns / scale), processes: this.processes[i], alone: summed(this.samples.isolated_ns[i]) };
    }
    const steps = this.samples.quantiles[i];
    if (!steps) return null;
    const unit = (this.samples.median_ns[i] || 1) * this.samples.step;
    return { values: summed(steps).map((step) => (step * unit) / scale) };
  }
}
