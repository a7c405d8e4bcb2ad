// Draws the charts of the page when they come near the window, and lets the switches choose their rows.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);

  // A table travels as columns; words in it as places in a list.
  function unpack(table) {
    const columns = table.fields.map((field, at) => {
      const words = table.words[field];
      return words ? table.values[at].map((place) => words[place]) : table.values[at];
    });
    return Array.from({ length: table.size }, (_, row) =>
      Object.fromEntries(table.fields.map((field, at) => [field, columns[at][row]])));
  }

  // What is typed into a search, if it is on its list; else what is shown at first, and the field says that it is wrong.
  function typed(search) {
    const value = search.value.trim();
    const known = !value || [...search.list.options].some((option) => option.value === value);
    search.setAttribute("aria-invalid", String(!known));
    return known && value ? value : search.dataset.first;
  }

  // What the switches of a figure say: for each field the values that are wanted.
  function wanted(figure) {
    const found = {};
    for (const select of figure.querySelectorAll("select[data-field]")) found[select.dataset.field] = [select.value];
    for (const search of figure.querySelectorAll("input[type=search][data-field]")) found[search.dataset.field] = [typed(search)];
    for (const box of figure.querySelectorAll("input[type=checkbox][data-field]")) {
      found[box.dataset.field] ??= [];
      if (box.checked) found[box.dataset.field].push(box.value);
    }
    return found;
  }

  // A picture that is the same for all seeds fits every seed.
  function choose(rows, want) {
    const fields = Object.keys(want).filter((field) => rows.length && field in rows[0]);
    return rows.filter((row) => fields.every((field) =>
      want[field].includes(row[field]) || (field === "seed" && row[field] === "all")));
  }

  function shown(value) {
    if (value === null || value === undefined) return "–";
    return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(5))) : String(value);
  }

  function numbers(figure, chart, rows) {
    const place = figure.querySelector(".numbers .scroll");
    if (!place || !figure.querySelector(".numbers").open) return;
    const most = 400;
    const table = document.createElement("table");
    table.createCaption().textContent = chart.title + (rows.length > most ? `: the first ${most} of ${rows.length} rows` : "");
    const head = table.createTHead().insertRow();
    for (const [, title] of chart.columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows.slice(0, most)) {
      const line = body.insertRow();
      for (const [field] of chart.columns) line.insertCell().textContent = shown(row[field]);
    }
    place.replaceChildren(table);
  }

  // What a chart shows now, for those who do not see it; its numbers are in the table below it.
  function label(figure, chart) {
    const said = [...figure.querySelectorAll("select[data-field]:not([hidden])")].map((select) => select.selectedOptions[0].text);
    const boxes = [...figure.querySelectorAll("input[data-field]:checked")].map((box) => box.value);
    for (const search of figure.querySelectorAll("input[type=search][data-field]")) said.push(`${search.dataset.field} ${typed(search)}`);
    return `${chart.title}: ${[...boxes, ...said].join(", ") || "nothing is chosen"}.`;
  }

  async function draw(figure) {
    const chart = charts[figure.id];
    if (chart.begun) return;
    chart.begun = true;
    const plot = figure.querySelector(".plot");
    try {
      chart.rows = {};
      for (const [name, table] of Object.entries(chart.tables)) chart.rows[name] = unpack(table);
      delete chart.tables;
      const pick = () => {
        const want = wanted(figure);
        return Object.fromEntries(Object.entries(chart.rows).map(([name, rows]) => [name, choose(rows, want)]));
      };
      const first = pick();
      const spec = { ...chart.spec, datasets: first };
      const result = await vegaEmbed(plot, spec, { renderer: "svg", actions: false, mode: "vega-lite" });
      chart.view = result.view;
      const svg = plot.querySelector("svg");
      svg.setAttribute("aria-hidden", "true");  // the plot has a label, and the numbers are in the table below it
      svg.removeAttribute("role");
      const update = async () => {
        const now = pick();
        const empty = !now[chart.table].length;
        plot.classList.toggle("empty", empty);  // axes of nothing make no sense: the chart is hidden until there is something
        if (!empty) {
          for (const [name, rows] of Object.entries(now)) chart.view.data(name, rows);
          await chart.view.runAsync();
        }
        numbers(figure, chart, now[chart.table]);
        plot.setAttribute("aria-label", label(figure, chart));
        figure.dataset.drawn = String(Number(figure.dataset.drawn) + 1);
      };
      figure.addEventListener("change", update);
      for (const button of figure.querySelectorAll(".every")) {
        const boxes = [...button.parentElement.querySelectorAll("input")];
        const name = () => { button.textContent = boxes.some((box) => box.checked) ? "none" : "all"; };
        button.addEventListener("click", () => {
          const on = !boxes.some((box) => box.checked);
          for (const box of boxes) box.checked = on;
          update();
          name();
        });
        figure.addEventListener("change", name);
      }
      figure.querySelector(".numbers").addEventListener("toggle", () => numbers(figure, chart, pick()[chart.table]));
      figure.dataset.drawn = "1";
    } catch (error) {
      plot.classList.add("error");
      plot.textContent = `This chart cannot be drawn: ${error.message}`;
      console.error(error);
    }
  }

  const figures = [...document.querySelectorAll("figure[id]")];
  const watch = new IntersectionObserver((seen) => {
    for (const one of seen) {
      if (one.isIntersecting) {
        watch.unobserve(one.target);
        draw(one.target);
      }
    }
  }, { rootMargin: "400px" });
  figures.forEach((figure) => watch.observe(figure));
  window.addEventListener("beforeprint", () => figures.forEach(draw));
  // A picture of the whole page has all charts, unless there are so many that to draw them takes long.
  if (figures.length <= 24) window.addEventListener("load", () => setTimeout(() => figures.forEach(draw), 200));

  // Light and dark: as the system says, until the reader says otherwise.
  const button = document.querySelector(".theme");
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = dark() ? "Light colours" : "Dark colours"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("shoal-theme", root.dataset.theme); } catch { /* a page from disk may not keep it */ }
    name();
  });
  try {
    const kept = localStorage.getItem("shoal-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* as above */ }
  system.addEventListener("change", name);
  name();
})();
