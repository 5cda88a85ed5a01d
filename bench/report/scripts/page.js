// What runs when the page opens.

function theme() {
  const select = document.getElementById("theme");
  const set = (value) => {
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
  };
  const kept = (() => {
    try {
      return localStorage.getItem("theme") ?? "";
    } catch {
      return ""; // pages from a file may have no storage
    }
  })();
  select.value = kept;
  set(kept);
  select.addEventListener("change", () => {
    set(select.value);
    try {
      localStorage.setItem("theme", select.value);
    } catch {
      // it lasts as long as the page
    }
  });
}

async function start() {
  theme();
  for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
  const data = await load();
  if (!data.count) { // claims may rest on demonstrations alone
    for (const part of document.querySelectorAll("figure.chart, #filters, #which, #cells")) part.hidden = true;
    document.documentElement.dataset.drawn = "all";
    return;
  }
  const record = new RecordDialog(data);
  const charts = new Charts(data, record.open);
  const families = new Families(data);
  families.onchange = (legendOnly) => charts.changed(families, legendOnly);
  charts.changed(families);
  new Which(data, record.open);
  const table = new CellsTable(data, record.open);
  for (const button of document.querySelectorAll("button.record[data-cell]")) {
    button.addEventListener("click", () => record.openNamed(button.dataset.run, button.dataset.cell));
  }
  addEventListener("hashchange", () => record.openLinked());
  record.openLinked();
  const profiles = document.getElementById("profile-data") && new Profiles(await unzipped("profile-data"), charts.specifications);
  globalThis.attentionBench = { data, charts, families, record, table, profiles };
}

start().catch((error) => {
  const box = document.getElementById("broken");
  box.hidden = false;
  box.textContent = `The charts and the table could not be made: ${error.message}`;
  throw error;
});
