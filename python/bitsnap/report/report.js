// Draws the figures that stand in the page as data, in the page's own colours, and lets the reader choose and search.
// Text out of the data only ever becomes text: it is set with textContent, and what plotly gets was escaped before.
// A page that is served has report_live.js as well, which brings newer pages (show) and answers questions about tensors
// (ask); the static page asks nothing.
"use strict";
globalThis.bitsnapReport = (() => {
  let page = null;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 560px)");
  const font = getComputedStyle(document.body).fontFamily;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--p-" + name).trim();
  const scale = (name) => [0, 1, 2, 3, 4].map((i) => [i / 4, colour(name + i)]);

  // "@name" is a colour of the page wherever a colour can stand.
  function coloured(value, key) {
    if (typeof value === "string" && value.startsWith("@") && /color/i.test(key)) {
      if (value === "@sequential") return scale("seq");
      if (value === "@diverging") return scale("div");
      return colour(value.slice(1));
    }
    if (Array.isArray(value)) return value.map((each) => coloured(each, key));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name)]));
    }
    return value;
  }

  function axis(given) {
    const own = {
      automargin: true, gridcolor: colour("grid"), zeroline: false, linecolor: colour("grid"), ticks: "",
      tickfont: { size: narrow.matches ? 11 : 12, color: colour("soft") }, fixedrange: narrow.matches, ...given,
    };
    if (own.title) own.title = { standoff: 10, font: { size: 12, color: colour("soft") }, ...own.title };
    return own;
  }

  // `revision` stays as long as a zoom of the reader stays.
  function layout(given, revision) {
    const own = {
      font: { family: font, size: 12.5, color: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 12, t: 12, b: 8 }, autosize: true, uirevision: revision, dragmode: narrow.matches ? false : "zoom",
      barcornerradius: given.barmode ? 2 : 0,
      hoverlabel: {
        bgcolor: colour("card"), bordercolor: colour("grid"), align: "left",
        font: { family: font, size: 12.5, color: colour("ink") },
      },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
      ...given,
    };
    own.legend = {
      orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", traceorder: "normal", itemwidth: 30,
      font: { size: 12, color: colour("soft") }, bgcolor: "rgba(0,0,0,0)", ...given.legend,
    };
    for (const name of Object.keys(own)) {
      if (/^[xy]axis\d*$/.test(name)) own[name] = axis(own[name]);
    }
    for (const name of ["xaxis", "yaxis"]) own[name] = own[name] || axis({});
    if (narrow.matches && own.shapes) {
      own.shapes = own.shapes.map((shape) => ({ ...shape, line: { ...shape.line, width: Math.min(3, shape.line.width) } }));
    }
    if (!/x unified/.test(own.hovermode || "")) own.hovermode = own.hovermode || "closest";
    else own.xaxis = { showspikes: false, ...own.xaxis };
    if (!(given.xaxis && given.xaxis.showgrid) && given.hovermode === "x unified") own.xaxis.showgrid = false;
    return own;
  }

  function trace(given) {
    const own = { ...given };
    if (own.type === "heatmap") {
      own.colorbar = {
        thickness: 9, outlinewidth: 0, len: 1, ticks: "", tickfont: { size: 11, color: colour("soft") }, ...own.colorbar,
      };
      own.hoverongaps = false;
      if (narrow.matches) {
        own.showscale = false;
        own.xgap = own.x.length > 12 ? 0.5 : own.xgap;
        own.texttemplate = own.x.length <= 6 ? own.texttemplate : "";
      }
      own.textfont = { size: narrow.matches ? 9.5 : 11.5 };
    }
    if (own.type === "bar" && !(own.marker && own.marker.line)) {
      own.marker = { ...own.marker, line: { width: 0 } };
    }
    return own;
  }

  function draw(card, figure, chosen) {
    const variant = figure.variants[chosen.join(",")];
    const plot = card.querySelector(".plot");
    if (!variant) { Plotly.purge(plot); return; }
    const settings = {
      displaylogo: false, responsive: true, displayModeBar: narrow.matches ? false : "hover",
      modeBarButtons: [["toImage", "resetScale2d"]],
      toImageButtonOptions: { filename: "bitsnap-" + figure.name, scale: 2 },
    };
    const data = coloured(variant.data, "").map(trace);
    Plotly.react(plot, data, layout(coloured(variant.layout, ""), chosen.join(",")), settings);
  }

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // Few short options as buttons side by side, others as a list.
  function controls(card, figure, chosen, redraw) {
    const place = card.querySelector(".controls");
    figure.controls.forEach((control, number) => {
      if (control.options.length < 2) return;
      const length = control.options.reduce((sum, option) => sum + option.length + 3, 0);
      if (length <= 56 && !narrow.matches || length <= 40) {
        const buttons = control.options.map((option, i) =>
          element("button", { type: "button", textContent: option, onclick: () => choose(i) }));
        const choose = (i) => {
          chosen[number] = i;
          buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === i)));
          redraw();
        };
        buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === chosen[number])));
        const group = element("div", { className: "choice" }, ...buttons);
        group.setAttribute("role", "group");
        group.setAttribute("aria-label", control.label);
        place.append(group);
      } else {
        const select = element("select", {}, ...control.options.map((option) => element("option", { textContent: option })));
        select.selectedIndex = chosen[number];
        select.onchange = () => { chosen[number] = select.selectedIndex; redraw(); };
        place.append(element("label", { className: "pick" }, control.label + " ", select));
      }
    });
  }

  // What is drawn, by the name of the figure: the options that the reader chose, and functions.
  const drawn = new Map();

  function connect(card, chosen) {
    const name = card.dataset.figure;
    const figure = page.figures[name];
    const redraw = () => draw(card, figure, chosen);
    card.querySelector(".controls").replaceChildren();
    controls(card, figure, chosen, redraw);
    redraw();
    const listen = !drawn.has(name) || drawn.get(name).card !== card;
    drawn.set(name, { card, figure, chosen, redraw });
    const plot = card.querySelector(".plot");
    if (name === "layers" && listen && plot.on) {
      plot.on("plotly_click", (event) => {
        const now = drawn.get(name);
        const { x, y } = event.points[0];
        openCell(card, now.figure.controls[0].options[now.chosen[0]], String(y), String(x));
      });
    }
  }

  const redrawAll = () => drawn.forEach((each) => each.redraw());
  dark.addEventListener("change", redrawAll);
  narrow.addEventListener("change", redrawAll);

  // The options of a newer figure that say what was chosen; what nobody chose follows the figure.
  function carried(old, figure) {
    return figure.controls.map((control, i) => {
      const before = old && old.figure.controls[i];
      if (!before || old.chosen[i] === before.chosen) return control.chosen;
      const found = control.options.indexOf(before.options[old.chosen[i]]);
      return found < 0 ? control.chosen : found;
    });
  }

  const parts = (root) => [...root.querySelectorAll("section, [data-figure]")].map((each) => each.id || each.dataset.figure);

  // Shows a newer page of the same run. What the reader is looking at stays, unless the page has other figures.
  function show(next) {
    page = JSON.parse(next.getElementById("data").textContent);
    const isSame = parts(document).join() === parts(next).join();
    document.querySelector("header").replaceWith(document.adoptNode(next.querySelector("header")));
    document.querySelector("footer").replaceWith(document.adoptNode(next.querySelector("footer")));
    if (!isSame) {
      document.querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
      document.querySelector("main").replaceWith(document.adoptNode(next.querySelector("main")));
      drawAll();
      fillSteps();
      return;
    }
    for (const section of next.querySelectorAll("section:not(#reasons)")) {
      const own = document.getElementById(section.id);
      if (!section.querySelector("[data-figure]")) own.replaceWith(document.adoptNode(section));
      for (const card of section.querySelectorAll("[data-figure]")) {
        const { card: mine, ...old } = drawn.get(card.dataset.figure);
        mine.className = card.className;
        mine.querySelector("figcaption").textContent = card.querySelector("figcaption").textContent;
        mine.querySelector(".plot").style.height = card.querySelector(".plot").style.height;
        connect(mine, carried(old, page.figures[card.dataset.figure]));
      }
    }
    fillSteps();
  }

  function drawAll() {
    for (const card of document.querySelectorAll("[data-figure]")) {
      const old = drawn.get(card.dataset.figure);
      connect(card, carried(old, page.figures[card.dataset.figure]));
    }
  }

  // ---- the tensors of one cell of the map of layers

  // Small bars; each has a height from 0 to 1, a text, and a class.
  function bars(values, label) {
    const made = element("div", { className: "bars" }, ...values.map(([height, title, className]) => {
      const bar = element("i", { className });
      bar.style.height = height > 0 ? Math.max(4, 100 * height) + "%" : "0";
      return element("span", { title }, bar);
    }));
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", label);
    return made;
  }

  const percent = (share) => share > 0 && share < 0.001 ? "<0.1 %" : +(100 * share).toPrecision(3) + " %";

  function range(bin) {
    if (bin < 2) return bin + " ULP";
    const compact = (value) => {
      const power = value < 10000 ? 0 : Math.floor(Math.log10(value) / 3);
      return power === 0 ? String(value) : Math.round(value / 1000 ** power) + ["", " k", " M", " G", " T", " P", " E"][power];
    };
    return compact(2 ** (bin - 1)) + "–" + compact(2 ** bin - 1) + " ULP";
  }

  function distanceChart(shares) {
    if (!shares.length) return ["–"];
    const most = Math.max(...shares);
    const values = shares.map((share, bin) => [share / most, percent(share) + " moved " + range(bin), "full"]);
    const at = shares.indexOf(most);
    return [bars(values, "distances"), element("small", { textContent: "most: " + range(at) + ", " + percent(most) })];
  }

  function entropyChart(found) {
    if (!found.planes || !found.planes.length) return ["–"];
    const values = [];
    found.planes.forEach((bits, byte) => {
      values.push([bits / 8, "byte " + byte + ", alone: " + bits.toFixed(2) + " bits of 8", "pale"]);
      const xor = found.xor_planes && found.xor_planes[byte];
      if (xor !== null && xor !== undefined) values.push([xor / 8, "byte " + byte + ", XOR: " + xor.toFixed(2) + " bits of 8", "full"]);
    });
    const text = (found.xor_planes || found.planes).map((bits) => bits.toFixed(1)).join(" ");
    return [bars(values, "entropies"), element("small", { textContent: (found.xor_planes ? "XOR: " : "alone: ") + text })];
  }

  let opened = 0;

  // Lists the tensors of a cell below the map. What the page does not hold is asked for, if anybody can be asked.
  function openCell(card, role, row, step) {
    const { rows, texts } = page.reasons;
    const own = rows.filter((each) =>
      String(each[0]) === step && texts[each[2]] === role && each[8] !== null && texts[each[8]] === row);
    // Undoes the escapes of a label for plotly; nothing in such a document is run or loaded.
    const label = new DOMParser().parseFromString(row, "text/html").body.textContent;
    const number = ++opened;
    const status = element("span", { className: "count" });
    status.setAttribute("role", "status");
    const close = element("button", { type: "button", className: "close", textContent: "Close" });
    const charts = new Map();
    const heads = ["tensor", "shape", "raw", "stored", "ratio", "codec", "distance moved", ...(api.ask ? ["entropy by byte"] : []), "why"];
    const lines = own.map((each) => {
      const place = [element("td", { className: "chart" }, ...distanceChart(each[9])), element("td", { className: "chart", textContent: "…" })];
      charts.set(texts[each[1]], place);
      const cell = (className, text) => element("td", { className, textContent: text });
      return element("tr", {}, cell("name", texts[each[1]]), cell("", texts[each[3]]), cell("n", size(each[5])),
        cell("n", size(each[6])), cell("n", ratio(each[5], each[6])),
        element("td", {}, element("span", { className: "chip", textContent: texts[each[4]] })),
        ...(api.ask ? place : place.slice(0, 1)), cell("why", texts[each[7]]));
    });
    const head = element("tr", {}, ...heads.map((text) =>
      element("th", { textContent: text, className: ["raw", "stored", "ratio"].includes(text) ? "n" : "" })));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
    const title = element("h3", { textContent: `${label}, ${role}, step ${step}` });
    const panel = element("div", { className: "tensors" },
      element("div", { className: "top" }, title, status, close), element("div", { className: "scroll" }, table));
    card.querySelector(".tensors")?.remove();
    close.onclick = () => { ++opened; panel.remove(); };
    card.querySelector(".plot").after(panel);
    status.textContent = own.length + (own.length === 1 ? " tensor" : " tensors");
    if (!api.ask) return;
    const count = status.textContent;
    status.textContent = count + ", studying them …";
    api.ask(step, role, row).then((answer) => {
      if (number !== opened) return;
      for (const [name, [distance, entropy]] of charts) {
        const found = answer.tensors[name];
        if (found) distance.replaceChildren(...distanceChart(found.distances));
        entropy.replaceChildren(...(found ? entropyChart(found) : ["–"]));
      }
      status.textContent = count + (answer.left_out ? `, ${answer.left_out} of them not studied` : "");
    }).catch((error) => {
      if (number !== opened) return;
      charts.forEach(([, entropy]) => entropy.replaceChildren("–"));
      status.textContent = count + "; " + error.message;
    });
  }

  // ---- the table of reasons

  const kPage = 60;
  let shown = kPage;
  const byId = (id) => document.getElementById(id);

  function fillSteps() {
    const select = byId("step");
    const steps = [...new Set(page.reasons.rows.map((row) => String(row[0])))];
    const wasNewest = select.selectedIndex <= 0;
    const before = select.value;
    select.replaceChildren(...steps.map((each) => element("option", { value: each, textContent: each })),
      element("option", { value: "", textContent: "all" }));
    if (!wasNewest && (before === "" || steps.includes(before))) select.value = before;
    byId("search").oninput = select.onchange = () => { shown = kPage; render(); };
    byId("more").onclick = () => { shown += 5 * kPage; render(); };
    render();
  }

  function size(bytes) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let i = 0;
    for (; bytes >= 999.5 && i < units.length - 1; ++i) bytes /= 1000;
    return (i === 0 ? bytes : bytes.toPrecision(3)) + "\u00a0" + units[i];
  }

  function ratio(raw, stored) {
    if (!stored) return "–";
    const value = raw / stored;
    return (value >= 1000 ? Math.round(value).toLocaleString("en") : value.toPrecision(3)) + "×";
  }

  function render() {
    const { rows, texts } = page.reasons;
    const step = byId("step");
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = rows.filter((row) => {
      if (step.value !== "" && String(row[0]) !== step.value) return false;
      const text = [1, 2, 3, 4, 7].map((i) => texts[row[i]]).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    byId("found").textContent = wanted.length + (wanted.length === 1 ? " tensor" : " tensors");
    const cell = (className, text) => element("td", { className, textContent: text });
    document.querySelector("#table tbody").replaceChildren(...wanted.slice(0, shown).map((row) => element("tr", {},
      cell("name", texts[row[1]] + (step.value === "" ? " @" + row[0] : "")), cell("", texts[row[2]]), cell("", texts[row[3]]),
      element("td", {}, element("span", { className: "chip", textContent: texts[row[4]] })),
      cell("n", size(row[5])), cell("n", size(row[6])), cell("n", ratio(row[5], row[6])), cell("why", texts[row[7]]))));
    byId("more").hidden = wanted.length <= shown;
  }

  // ---- the data and plotly, which stand compressed in the page

  async function unpacked(id) {
    const packed = Uint8Array.from(atob(byId(id).textContent), (each) => each.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function load() {
    page = JSON.parse(await unpacked("data"));
    fillSteps();
    document.head.append(element("script", { textContent: await unpacked("plotly") }));
  }

  const api = { show, version: () => page.version, ask: null, ready: load() };
  api.ready.then(drawAll, (error) => {
    const text = "The plots need a browser of 2023 or newer: " + error.message;
    document.querySelector("main").prepend(element("p", { className: "notice", textContent: text }));
  });
  return api;
})();
