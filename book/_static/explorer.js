/* An explorer that runs in the page, without a kernel and without a network: which cells of a
   tensor share a mean? It stands whole in elements with data-explorer="cells" and small, without
   questions, behind data of normlab.book.sources.touch("explorer", {norm, layout, sizes}).
   The arithmetic, normlabExplorer.normalize, is tested against normlab.layers. */
(function () {
  "use strict";

  const EPS = 1e-5;
  // generated: norms
  const NORMS = {
    batch_norm: {"name": "Batch norm", "color": "#0072b2", "over": {"N, D": "N", "N, C, H, W": "NHW", "N, T, D": "NT"}, "weight": {"N, D": "D", "N, C, H, W": "C", "N, T, D": "D"}, "call": {"N, D": "nn.BatchNorm1d({channels})", "N, C, H, W": "nn.BatchNorm2d({channels})", "N, T, D": "nn.BatchNorm1d({channels})"}, "grouped": false, "centered": true, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    layer_norm: {"name": "Layer norm", "color": "#d55e00", "over": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "D"}, "weight": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "D"}, "call": {"N, D": "nn.LayerNorm({shape})", "N, C, H, W": "nn.LayerNorm({shape})", "N, T, D": "nn.LayerNorm({shape})"}, "grouped": false, "centered": true, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    rms_norm: {"name": "RMS norm", "color": "#009e73", "over": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "D"}, "weight": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "D"}, "call": {"N, D": "nn.RMSNorm({shape})", "N, C, H, W": "nn.RMSNorm({shape})", "N, T, D": "nn.RMSNorm({shape})"}, "grouped": false, "centered": false, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    group_norm: {"name": "Group norm", "color": "#cc79a7", "over": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "DT"}, "weight": {"N, D": "D", "N, C, H, W": "C", "N, T, D": "D"}, "call": {"N, D": "nn.GroupNorm({groups}, {channels})", "N, C, H, W": "nn.GroupNorm({groups}, {channels})", "N, T, D": "nn.GroupNorm({groups}, {channels})"}, "grouped": true, "centered": true, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    instance_norm: {"name": "Instance norm", "color": "#e69f00", "over": {"N, D": "", "N, C, H, W": "HW", "N, T, D": "T"}, "weight": {"N, D": "D", "N, C, H, W": "C", "N, T, D": "D"}, "call": {"N, D": "nn.InstanceNorm1d({channels})", "N, C, H, W": "nn.InstanceNorm2d({channels})", "N, T, D": "nn.InstanceNorm1d({channels})"}, "grouped": false, "centered": true, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    filter_response_norm: {"name": "Filter response norm", "color": "#885500", "over": {"N, D": "", "N, C, H, W": "HW", "N, T, D": "T"}, "weight": {"N, D": "D", "N, C, H, W": "C", "N, T, D": "D"}, "call": {"N, D": "", "N, C, H, W": "", "N, T, D": ""}, "grouped": false, "centered": false, "spread": "mean square", "epsPlacement": "inside", "epsBounds": "square"},
    scale_norm: {"name": "ScaleNorm", "color": "#00bbcc", "over": {"N, D": "D", "N, C, H, W": "CHW", "N, T, D": "D"}, "weight": {"N, D": "", "N, C, H, W": "", "N, T, D": ""}, "call": {"N, D": "", "N, C, H, W": "", "N, T, D": ""}, "grouped": false, "centered": false, "spread": "sum of squares", "epsPlacement": "clamp", "epsBounds": "root"},
  };
  // end
  // The axes of a layout in the order of memory; channels are C, or D where there is no C.
  const LAYOUTS = {
    "N, C, H, W": { axes: ["N", "C", "H", "W"], sizes: [3, 4, 2, 2] },
    "N, T, D": { axes: ["N", "T", "D"], sizes: [3, 3, 4] },
    "N, D": { axes: ["N", "D"], sizes: [3, 4] },
  };

  function indices(sizes) {
    let all = [[]];
    for (const size of sizes) {
      all = all.flatMap((head) => Array.from({ length: size }, (_, i) => [...head, i]));
    }
    return all;
  }

  /* Labels of the cells: equal labels share one mean, or one weight. */
  function shareMean(norm, layout, index, groups, sizes) {
    const { axes } = LAYOUTS[layout];
    const block = (axis, k) => norm.grouped && "CD".includes(axis)
      ? Math.floor(index[k] / (sizes[k] / groups)) : "all";
    return axes.map((axis, k) => norm.over[layout].includes(axis) ? block(axis, k) : index[k]).join();
  }

  function shareWeight(norm, layout, index) {
    return LAYOUTS[layout].axes.map((axis, k) => norm.weight[layout].includes(axis) ? index[k] : "all")
      .join();
  }

  /* What is divided by, before eps. */
  function root(norm, average, shift, count) {
    const times = norm.spread === "sum of squares" ? count : 1;
    return Math.sqrt(times * average((v) => (v - shift) ** 2));
  }

  function withEps(norm, size) {
    if (norm.epsPlacement === "outside") return size + EPS;
    const least = norm.epsBounds === "root" ? EPS : Math.sqrt(EPS);
    return norm.epsPlacement === "clamp" ? Math.max(size, least) : Math.sqrt(size ** 2 + EPS);
  }

  /* Standardize a tensor, given as its values in the order of memory. */
  function normalize(values, layout, name, { sizes = LAYOUTS[layout].sizes, groups = 2 } = {}) {
    const norm = NORMS[name];
    const cells = indices(sizes);
    const labels = cells.map((index) => shareMean(norm, layout, index, groups, sizes));
    const weights = cells.map((index) => shareWeight(norm, layout, index));
    if (!norm.over[layout]) {
      const left = norm.centered ? "nothing" : "only its sign";
      return { error: `${norm.name} needs positions: over one value per channel ${left} is left.` };
    }
    const members = new Map();
    labels.forEach((label, i) => members.set(label, [...(members.get(label) || []), i]));
    const mean = [], rstd = [], output = [];
    for (const group of members.values()) {
      const average = (f) => group.reduce((sum, i) => sum + f(values[i]), 0) / group.length;
      const m = average((v) => v);
      const shift = norm.centered ? m : 0;
      const r = 1 / withEps(norm, root(norm, average, shift, group.length));
      for (const i of group) {
        mean[i] = m;
        rstd[i] = r;
        output[i] = (values[i] - shift) * r;
      }
    }
    const perMean = members.values().next().value.length;
    const refused = perMean === 1 && norm.over[layout].includes("N")
      ? "One value per channel: every output is 0. In training, torch refuses this batch." : "";
    return {
      labels, weights, mean, rstd, output, perMean, refused,
      means: members.size, parameters: new Set(weights).size,
    };
  }

  function makeValues(count) {
    let state = 7;
    return Array.from({ length: count }, () => {
      state = (state * 1103515245 + 12345) % 2147483648;
      return Math.round((state / 2147483648) * 60 - 20) / 10;
    });
  }

  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  let numbered = 0;
  function choice(label, options, value, change) {
    const id = `nx-${++numbered}`;
    const select = make("select", { id, onchange: () => change(select.value) });
    for (const [key, text] of options) {
      const option = make("option", { value: key }, text);
      option.selected = String(key) === String(value);
      select.append(option);
    }
    return make("span", { class: "nx-control" }, make("label", { for: id }, label), select);
  }

  const minus = (number, digits = 2) => number.toFixed(digits).replace("-", "−");

  /* ---- which cells share a mean ---------------------------------------------------------- */

  const QUESTIONS = [
    ["N, T, D", "layer_norm", 3, 2, "means", "How many means does layer norm take here?"],
    ["N, C, H, W", "batch_norm", 4, 2, "perMean", "How many cells share one mean in batch norm?"],
    ["N, C, H, W", "group_norm", 3, 2, "perMean", "How many cells share one mean in group norm?"],
    ["N, T, D", "layer_norm", 3, 2, "parameters", "How many weights does layer norm carry here?"],
  ];

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  /* The settings that a link holds, as in #norm=group_norm&layout=N, D&batch=2&groups=4&at=0. */
  function readLink() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    if (!(given.norm in NORMS) || !(given.layout in LAYOUTS)) return {};
    const number = (key, least, most) => Math.min(most, Math.max(least, Number(given[key]) || least));
    return {
      norm: given.norm, layout: given.layout, batch: number("batch", 1, 4),
      groups: number("groups", 1, 4), at: number("at", 0, 1e3),
    };
  }

  function cellsExplorer(host, { small = false, norm = "batch_norm", layout = "N, C, H, W", sizes: given } = {}) {
    const state = { layout, norm, batch: given ? given[0] : 3, groups: 2, at: 0, ask: 0 };
    const shape = { ...LAYOUTS[layout], ...(given && { sizes: given }) };
    let values = [];
    const controls = make("div", { class: "nx-controls" });
    const grid = make("div", { class: "nx-grid", role: "group", "aria-label": "Cells of the tensor" });
    const readout = make("div", { class: "nx-readout", "aria-live": "polite" });
    const quiz = make("fieldset", { class: "nx-quiz" });
    host.replaceChildren(controls, grid, readout, ...(small ? [] : [quiz]));
    host.classList.toggle("nx-small", small);

    const ofLayout = () => (state.layout === layout ? shape : LAYOUTS[state.layout]).sizes;
    const sizes = () => [state.batch, ...ofLayout().slice(1)];
    const channels = () => ofLayout()[state.layout === "N, C, H, W" ? 1 : ofLayout().length - 1];
    const groupings = () => [1, 2, 3, 4].filter((n) => channels() % n === 0);
    const result = () => normalize(values, state.layout, state.norm,
      { sizes: sizes(), groups: state.groups });

    function reset(at = 0) {
      const size = sizes().reduce((a, b) => a * b, 1);
      values = makeValues(size);
      state.at = Math.min(at, size - 1);
      if (!groupings().includes(state.groups)) state.groups = groupings()[1] ?? 1;
      draw();
    }

    function set(key, value) {
      state[key] = key === "batch" || key === "groups" ? Number(value) : value;
      if (key === "norm" || key === "groups") draw();
      else reset();
    }

    function drawControls() {
      controls.replaceChildren(
        choice("Norm ", Object.entries(NORMS).map(([k, n]) => [k, n.name]), state.norm, (v) => set("norm", v)),
        choice("Layout ", Object.keys(LAYOUTS).map((k) => [k, `(${k})`]), state.layout,
          (v) => set("layout", v)),
        choice("Samples ", [1, 2, 3, 4].map((n) => [n, n]), state.batch, (v) => set("batch", v)));
      if (NORMS[state.norm].grouped) {
        controls.append(choice("Groups ", groupings().map((n) => [n, n]), state.groups,
          (v) => set("groups", v)));
      }
    }

    function label(index) {
      const axes = LAYOUTS[state.layout].axes;
      return index.map((i, k) => `${axes[k]} ${i}`).join(", ");
    }

    /* One row of blocks per sample (and token); one block per channel, with its positions. */
    const block = () => ({ "N, C, H, W": sizes().slice(2), "N, T, D": [sizes()[1], 1], "N, D": [1, 1] })[state.layout];

    function place(index) {
      const [rows, columns] = block();
      if (state.layout === "N, C, H, W") return [index[0] * rows + index[2], index[1] * columns + index[3]];
      if (state.layout === "N, T, D") return [index[0] * rows + index[1], index[2]];
      return [index[0], index[1]];
    }

    function draw(focus = false) {
      const found = result();
      const cells = indices(sizes());
      const [rows, columnsOfBlock] = block();
      const columns = Math.max(...cells.map((c) => place(c)[1])) + 1;
      grid.style.gridTemplateColumns = `repeat(${columns}, minmax(2.2rem, 3.4rem))`;
      grid.style.setProperty("--nx-color", NORMS[state.norm].color);
      const buttons = cells.map((index, i) => {
        const same = !found.error && found.labels[i] === found.labels[state.at];
        const weight = !found.error && found.weights[i] === found.weights[state.at];
        const [row, column] = place(index);
        const button = make("button", {
          type: "button", tabindex: i === state.at ? "0" : "-1", "data-cell": i,
          "aria-pressed": String(i === state.at),
          "aria-label": `${label(index)}: ${minus(values[i], 1)}` +
            (same ? ", shares the mean" : "") + (weight ? ", shares the weight" : ""),
          class: (same ? "nx-same" : "") + (weight ? " nx-weight" : ""),
          onclick: () => { state.at = i; draw(true); },
        }, minus(values[i], 1));
        button.style.gridRow = row + 1;
        button.style.gridColumn = column + 1;
        if (row % rows === 0 && row) button.style.marginTop = "0.5rem";
        if (column % columnsOfBlock === 0 && column && columnsOfBlock > 1) button.style.marginLeft = "0.4rem";
        return button;
      });
      grid.replaceChildren(...buttons);
      drawControls();
      drawReadout(found, cells);
      if (focus) buttons[state.at].focus();
    }

    function drawReadout(found, cells) {
      if (found.error) {
        readout.replaceChildren(make("p", {}, found.error));
        return;
      }
      const i = state.at;
      const step = (by) => () => {
        values[i] = Math.round((values[i] + by) * 10) / 10;
        draw();
        readout.querySelector(by > 0 ? "[data-step='1']" : "[data-step='-1']").focus();
      };
      const squares = NORMS[state.norm].spread === "sum of squares"
        ? ["sum of squares", "sums of squares"] : ["mean square", "mean squares"];
      const [one, many] = NORMS[state.norm].centered ? ["mean", "means"] : squares;
      const call = NORMS[state.norm].call[state.layout]
        .replace("{channels}", channels()).replace("{groups}", state.groups)
        .replace("{shape}", state.layout === "N, C, H, W" ? `(${sizes().slice(1).join(", ")})` : channels());
      const link = `#${new URLSearchParams({ norm: state.norm, layout: state.layout,
        batch: state.batch, groups: state.groups, at: state.at })}`;
      readout.replaceChildren(
        make("p", {}, `${NORMS[state.norm].name}: ${found.means === 1 ? `1 ${one}`
          : `${found.means} ${many}, each`} over ${count(found.perMean, "cell")} ` +
          `(filled). ${count(found.parameters, "weight")}; dots mark the cells that share one. `,
          ...(call ? ["In torch: ", make("code", {}, call), ". "] : []),
          ...(small ? [] : [make("a", { href: link }, "Link to this")])),
        make("p", {}, `Cell ${label(cells[i])}: value ${minus(values[i], 1)} `,
          make("button", { type: "button", "data-step": "-1", "aria-label": "make the value smaller",
            onclick: step(-0.5) }, "−"), " ",
          make("button", { type: "button", "data-step": "1", "aria-label": "make the value larger",
            onclick: step(0.5) }, "+")),
        make("p", { class: "nx-numbers" },
          (NORMS[state.norm].centered ? `mean ${minus(found.mean[i])}, ` : "") +
          `rstd ${minus(found.rstd[i])}, output ${minus(found.output[i])}`));
      if (found.refused) readout.append(make("p", {}, found.refused));
    }

    function drawQuiz() {
      const [layout, norm, batch, groups, field, text] = QUESTIONS[state.ask];
      const size = [batch, ...LAYOUTS[layout].sizes.slice(1)];
      const right = normalize(makeValues(size.reduce((a, b) => a * b, 1)), layout, norm,
        { sizes: size, groups })[field];
      const answer = make("output", { "aria-live": "polite" });
      const id = `nx-${++numbered}`;
      const guess = make("input", { id, type: "number", min: "1", inputmode: "numeric" });
      const reveal = () => {
        const given = Number(guess.value);
        if (!guess.value) { answer.textContent = " Write a number first."; return; }
        answer.textContent = given === right ? ` Right: ${right}.` : ` ${right}, not ${given}. Look above.`;
        Object.assign(state, { layout, norm, batch, groups });
        reset();
      };
      quiz.replaceChildren(
        make("legend", {}, `Predict, then look (${state.ask + 1} of ${QUESTIONS.length})`),
        make("label", { for: id }, `${text} Layout (${layout}), sizes ${size.join(" × ")}` +
          (NORMS[norm].grouped ? `, ${groups} groups. ` : ". ")),
        make("form", { onsubmit: (event) => { event.preventDefault(); reveal(); } },
          guess, " ", make("button", {}, "Look")), " ",
        make("button", { type: "button",
          onclick: () => { state.ask = (state.ask + 1) % QUESTIONS.length; drawQuiz();
            quiz.querySelector("input").focus(); } }, "Next question"), answer);
    }

    grid.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (!(event.key in step)) return;
      event.preventDefault();
      const cells = indices(sizes()).map(place);
      const [row, column] = cells[state.at];
      const [down, right] = step[event.key];
      const next = cells.findIndex(([r, c]) => r === row + down && c === column + right);
      if (next >= 0) { state.at = next; draw(true); }
    });
    if (!small) {
      const follow = () => { const { at, ...rest } = readLink(); Object.assign(state, rest); reset(at); };
      window.addEventListener("hashchange", () => { if (location.hash.startsWith("#norm=")) follow(); });
      follow();
      drawQuiz();
    } else reset();
  }

  window.normlabExplorer = { normalize };
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-explorer='cells']").forEach((host) => cellsExplorer(host));
    document.querySelectorAll("script.touch[data-figure='explorer']").forEach((stored) => {
      const host = make("div", { class: "norm-explorer" });
      (stored.closest(".cell_output") ?? stored).after(host);
      cellsExplorer(host, { small: true, ...JSON.parse(stored.textContent) });
    });
  });
})();
