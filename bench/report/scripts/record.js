// The record of one cell: everything that is known of it, in a dialog of its own.

class RecordDialog {
  constructor(data) {
    this.data = data;
    this.dialog = document.getElementById("record");
    this.specifications = parsed("specifications");
    this.open = this.open.bind(this);
    this.dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  /** The cell that a link names: `#record=RUN/CELL`. */
  openLinked() {
    const [, run, key] = /^#record=([^/]*)\/(.*)$/.exec(location.hash) ?? [];
    if (key) this.openNamed(decodeURIComponent(run), decodeURIComponent(key));
  }

  openNamed(run, key) {
    const { data } = this;
    const i = data.cells.cell_key.findIndex((one, place) => one === key && data.runs[data.column("run")[place]].id === run);
    if (i >= 0) this.open(i);
  }

  async open(i) {
    const { data, dialog } = this;
    await data.detailed();
    const run = data.runs[data.column("run")[i]];
    const title = `${data.column("implementation")[i]} on ${data.field("key", i)}`;
    dialog.replaceChildren(
      element("div", { class: "head" }, element("h2", { id: "record-title" }, title),
        element("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Close")),
      ...this.status(i), ...this.samples(i), ...this.agreement(i), ...this.repeat(i, run),
      element("h3", {}, "All numbers"), this.numbers(i),
      element("details", {}, element("summary", {}, `Environment of run ${run.id}`),
        tableOf(["what", "value"], run.machine, "Environment")));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    history.replaceState(null, "", `#record=${encodeURIComponent(run.id)}/${encodeURIComponent(data.cells.cell_key[i])}`);
    await this.plot(i);
    dialog.dataset.cell = i;
  }

  status(i) {
    const { data } = this;
    const [status, reason, flags] = ["status", "reason", "flags"].map((name) => data.column(name)[i]);
    const against = data.titled["against fastest"];
    const versus = data.text(i, against);
    const parts = [element("p", {}, element("b", {}, status.replaceAll("_", " ")), reason ? `: ${reason}` : "")];
    if (flags.length) parts.push(element("ul", {}, flags.map(([name, why]) => element("li", {}, `flagged ${name}: ${why}`))));
    if (data.column("latency_ms")[i] !== null) {
      const several = data.column("sound")[i] ? "" : "; impossible, so it is compared with nothing";
      parts.push(element("p", {}, "Median per call ", element("b", { class: "median" }, data.text(i, data.titled.latency)),
        `, interval ${data.interval(i)} ms ${Number(data.text(i, data.titled.processes)) > 1 ? "across processes" : "within run"}${several}.`));
      const why = data.reason(i, against);
      parts.push(element("p", {}, "Against the fastest on this problem: ", element("b", { class: "verdict" }, versus),
        why ? ` (${why})` : "", "."));
    }
    return parts;
  }

  samples(i) {
    const found = this.data.samplesOf(i);
    if (!found) return [];
    const list = found.raw ? [element("details", {}, element("summary", {}, `All ${found.raw.length} samples, in nanoseconds per block of ${
      this.data.column("calls_per_sample")[i]} ${this.data.column("calls_per_sample")[i] === 1 ? "call" : "calls"}`), element("pre", { class: "raw", tabindex: 0 }, found.raw.join(", ")))] : [];
    if (found.alone?.length) list.push(element("details", {}, element("summary", {}, `${found.alone.length} blocks on their own, in nanoseconds`),
      element("pre", { class: "raw", tabindex: 0 }, found.alone.join(", "))));
    return [element("h3", {}, "Samples"), element("div", { id: "samples", class: "plot" }), ...list];
  }

  async plot(i) {
    const { data } = this;
    const found = data.samplesOf(i);
    this.view?.finalize();
    this.view = null;
    if (!found) return;
    const raw = found.processes !== undefined;
    const last = found.values.length - 1;
    const rows = found.values.map((y, place) => ({
      x: raw ? place + 1 : place / last, y, value: shown(y, "ms"), process: raw ? String(found.processes[place] + 1) : null,
    }));
    const [y, lo, hi] = ["latency_ms", "latency_lo_ms", "latency_hi_ms"].map((name) => data.column(name)[i]);
    const specification = structuredClone(this.specifications[raw ? "samples" : "quantiles"]);
    specification.datasets = { cells: [...rows, { y, lo, hi }] };
    specification.width = Math.min(620, this.dialog.clientWidth - 180);
    this.view = (await vegaEmbed("#samples", specification, EMBED)).view;
  }

  agreement(i) {
    const found = this.data.column("agreement")[i];
    if (!found) return [];
    const number = (value) => (value === null || value === undefined ? "-" : shown(value, typeof value === "number" ? "error" : ""));
    const names = { max_abs: "largest error", limit: "limit", rmse: "RMSE", rel_rmse: "relative RMSE",
      rmse_over_naive: "RMSE/naive", nonfinite: "not finite", nonzero: "not zero" };
    const tensors = { ...found.tensors, ...Object.fromEntries(Object.entries(found.rows ?? {}).map(([name, error]) => [`${name} rows`, error])) };
    const columns = Object.keys(names).filter((name) => Object.values(tensors).some((error) => name in error));
    const rows = Object.entries(tensors).map(([name, error]) => [name, ...columns.map((column) => number(error[column]))]);
    const checks = Object.entries(found.checks).map(([name, check]) => [name, check.passed ? "passed" : "FAILED",
      number(check.error), number(check.limit), check.detail ?? ""]);
    const missing = Object.entries(found.missing).map(([name, why]) => `${name}: ${why}`);
    const bits = { deterministic: "a repeated call", batch_invariant: "a batch item computed alone" };
    const same = Object.entries(bits).map(([name, what]) => `${what} ${
      { true: "gives the same bits", false: "gives other bits", null: "could not be tried" }[found[name] ?? null]}`);
    return [
      element("h3", {}, found.passed ? "Agrees with float64" : "DISAGREES with float64"),
      tableOf(["tensor", ...columns.map((name) => names[name])], rows, "Errors by tensor"),
      checks.length ? tableOf(["check", "outcome", "error", "limit", "detail"], checks, "Structured checks") : null,
      element("p", {}, `${found.certificate ? `Certified on ${found.certificate}` : "No certificate"}; ${same.join("; ")}.`),
      missing.length ? element("p", {}, `Not returned: ${missing.join("; ")}.`) : null,
      element("h3", {}, "What ran"),
      element("p", { class: "receipt" }, found.ran.length ? found.ran.join(", ") : "not known: this device has no probe, or the call was refused before it"),
      this.data.column("notes")[i] ? element("pre", { tabindex: 0, "aria-label": "Notes of the implementation" }, JSON.stringify(this.data.column("notes")[i], null, 1)) : null,
    ].filter(Boolean);
  }

  repeat(i, run) {
    const link = this.data.samples.kind === "raw" ? null
      : element("p", {}, "Raw samples: ", element("a", { href: run.file }, run.file), ` (cell_key of this line: ${this.data.cells.cell_key[i]})`);
    return [element("h3", {}, "Repeat it"), copyable(this.data.command(i), "the command"), link].filter(Boolean);
  }

  numbers(i) {
    const rows = this.data.heads.map((head, place) => [head.title, this.data.text(i, place), this.data.reason(i, place) || head.about]);
    return tableOf(["what", "value", "about, or why it is missing"], rows, "All numbers of this cell");
  }
}
