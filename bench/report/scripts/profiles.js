// Charts of profiles: shares of one call by stage over lengths, and live bytes over one call.

const PROFILE_HEADS = {
  stages: [["implementation", "length", "part", "share", "time"], (row) => [row.implementation, String(row.x), row.name, row.said, row.value]],
  timeline: [["tensor", "from", "holds"], (row) => [row.name, row.at, row.value]],
};

class Profiles {
  constructor(content, specifications) {
    Object.assign(this, { content, specifications });
    this.all = Array.from(document.querySelectorAll("figure[data-profile]"), (figure) => this.made(figure));
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) this.draw(this.all.find((one) => one.figure === entry.target));
    }, { rootMargin: "200px" });
    for (const chart of this.all) watch.observe(chart.figure);
    setTimeout(() => this.all.forEach((chart) => this.draw(chart)), 1000); // those that nobody has come to, after the others
  }

  made(figure) {
    const part = (query) => figure.querySelector(query);
    const chart = { name: figure.dataset.profile, figure, part, view: null, drawn: false, work: Promise.resolve() };
    chart.from = chart.name === "stages" ? this.content.families : this.content.timelines;
    part(".which").replaceChildren(...chart.from.map(({ title }, place) => element("option", { value: place }, title)));
    for (const name of ["which", "kind"]) part(`.${name}`).addEventListener("change", () => this.draw(chart, true));
    part(".numbers").addEventListener("toggle", () => this.numbers(chart));
    return chart;
  }

  /** What is chosen, and of the other choice only what exists with it. */
  chosen(chart) {
    const one = chart.from[Number(chart.part(".which").value)];
    const kinds = one.kinds ?? { stage: one };
    const select = chart.part(".kind");
    if (!(select.value in kinds)) select.value = "stage";
    select.parentElement.hidden = Object.keys(kinds).length < 2;
    return { ...kinds[select.value], title: one.title };
  }

  draw(chart, again = false) {
    if (chart.drawn && !again) return chart.work;
    chart.drawn = true;
    chart.work = chart.work.then(() => this.embed(chart));
    return chart.work;
  }

  async embed(chart) {
    const { rows, colours, said, title } = this.chosen(chart);
    const specification = structuredClone(this.specifications[chart.name]);
    const room = chart.figure.clientWidth - 90;
    specification.datasets = { cells: rows };
    if (specification.spec) {
      const panels = new Set(rows.map((row) => row.implementation)).size;
      specification.columns = Math.max(1, Math.min(3, panels, Math.floor(room / 300)));
      specification.spec.width = Math.max(200, Math.min(560, Math.floor(room / specification.columns) - 22));
    } else specification.width = Math.max(200, Math.min(1000, room));
    Object.assign((specification.spec ?? specification).layer[0].encoding.color.scale, colours);
    chart.view?.finalize();
    chart.view = (await vegaEmbed(chart.part(".plot"), specification, EMBED)).view;
    chart.part(".said").textContent = `${title}. ${said}`; // on paper there is no drop-down
    chart.rows = rows;
    chart.figure.dataset.rows = rows.length;
    this.numbers(chart);
  }

  /** The rows of a chart as a table, made when it is opened. */
  numbers(chart) {
    const details = chart.part(".numbers");
    if (!details.open || !chart.rows) return;
    const [heads, texts] = PROFILE_HEADS[chart.name];
    const rows = chart.rows.filter((row) => row.name !== undefined).slice(0, MAX_NUMBERS).map(texts);
    details.replaceChildren(details.querySelector("summary"), tableOf(heads, rows, `Numbers: ${chart.part("h3").textContent}`));
  }
}
