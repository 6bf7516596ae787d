// Draws the figures that stand in the page as data, in the page's own colours, and lets the reader choose and search.
// Text out of the data only ever becomes text: it is set with textContent, and what plotly gets was escaped before.
"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
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

  function layout(given) {
    const own = {
      font: { family: font, size: 12.5, color: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 8, r: 12, t: 12, b: 8 }, autosize: true, dragmode: narrow.matches ? false : "zoom",
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
    Plotly.react(plot, data, layout(coloured(variant.layout, "")), settings);
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

  const redraws = [];
  for (const card of document.querySelectorAll("[data-figure]")) {
    const figure = page.figures[card.dataset.figure];
    const chosen = figure.controls.map((control) => control.chosen);
    const redraw = () => draw(card, figure, chosen);
    controls(card, figure, chosen, redraw);
    redraws.push(redraw);
    redraw();
  }
  const redrawAll = () => redraws.forEach((redraw) => redraw());
  dark.addEventListener("change", redrawAll);
  narrow.addEventListener("change", redrawAll);

  // ---- the table of reasons

  const { rows, texts } = page.reasons;
  const kPage = 60;
  const body = document.querySelector("#table tbody");
  const search = document.getElementById("search");
  const step = document.getElementById("step");
  const more = document.getElementById("more");
  const found = document.getElementById("found");
  const steps = [...new Set(rows.map((row) => row[0]))];
  for (const each of steps) step.append(element("option", { value: String(each), textContent: String(each) }));
  step.append(element("option", { value: "", textContent: "all" }));
  let shown = kPage;

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
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = rows.filter((row) => {
      if (step.value !== "" && String(row[0]) !== step.value) return false;
      const text = [1, 2, 3, 4, 7].map((i) => texts[row[i]]).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    found.textContent = wanted.length + (wanted.length === 1 ? " tensor" : " tensors");
    const cell = (className, text) => element("td", { className, textContent: text });
    body.replaceChildren(...wanted.slice(0, shown).map((row) => element("tr", {},
      cell("name", texts[row[1]] + (step.value === "" ? " @" + row[0] : "")), cell("", texts[row[2]]), cell("", texts[row[3]]),
      element("td", {}, element("span", { className: "chip", textContent: texts[row[4]] })),
      cell("n", size(row[5])), cell("n", size(row[6])), cell("n", ratio(row[5], row[6])), cell("why", texts[row[7]]))));
    more.hidden = wanted.length <= shown;
  }

  search.oninput = step.onchange = () => { shown = kPage; render(); };
  more.onclick = () => { shown += 5 * kPage; render(); };
  render();
})();
