/* The stream: what each layer of a deep Transformer passes on, and what gradient reaches it. */
(function () {
  "use strict";

  const SHARES = { domain: [1e-5, 1.6], ticks: [1e-4, 0.001, 0.01, 0.1, 1] };
  const LEAST = 1e-5;

  const write = (count) => count.toLocaleString("en-US");
  const dash = (dashes) => dashes.map((far) => 2 * far).join(" ") || null;

  /* By the rule, how long a branch is beside its skip; the skip of Pre-LN is not normed, and grows. */
  function length(group, layers) {
    const alpha = (2 * layers) ** 0.25, beta = (8 * layers) ** -0.25;
    return { post_norm: 1, "alpha only": 1 / alpha, "beta only": beta ** 2, deep_norm: beta ** 2 / alpha }[group];
  }

  function compute({ group, depth }, data) {
    const layers = data.depths[depth], numbered = data.layers[depth], r = length(group, layers);
    const { differ, spread } = data.groups[group].curves[depth];
    const rule = r ? numbered.map((layer) => data.start * (1 + r * r) ** (-2 * layer)) : [];
    return {
      group, layers, numbered, differ, rule, spread, powers: Math.log10(spread), share: differ.at(-1),
      ruled: rule.length ? rule.at(-1) : 0,
    };
  }

  /* The names of the blocks are the buttons that choose one: as many in a row as it holds. */
  function drawNames(svg, groups, { state, width, change, part }) {
    const names = groups.map(([name, { label, color, dashes }]) => ({ name, label, color, dashes }));
    const choose = (_, { name }) => change({ group: name, seen: { ...state.seen, [name]: true } });
    const places = part(svg, "g.names").selectAll("g").data(names).join((enter) => {
      const added = enter.append("g").attr("class", "touch-press").attr("tabindex", 0).attr("role", "button");
      added.append("rect").attr("height", 26).attr("rx", 4).attr("fill", "#fff");
      added.append("line").attr("x1", 6).attr("x2", 32).attr("y1", 13).attr("y2", 13).attr("stroke-width", 2.5);
      added.append("text").attr("x", 37).attr("y", 18).text((d) => d.label);
      return added;
    });
    let x = 2, y = 2;
    places.attr("transform", function (d) {
      d.wide = d3.select(this).select("text").node().getComputedTextLength() + 43;
      if (x + d.wide > width) [x, y] = [2, y + 30];
      x += d.wide + 6;
      return `translate(${x - d.wide - 6},${y})`;
    }).attr("aria-label", (d) => d.label)
      .attr("aria-pressed", (d) => d.name === state.group)
      .on("click", choose).on("keydown", (event, d) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        choose(event, d);
      });
    places.select("rect").attr("width", (d) => d.wide).attr("stroke", (d) => (d.name === state.group ? "#111" : "#999"))
      .attr("stroke-width", (d) => (d.name === state.group ? 3 : 1));
    places.select("line").attr("stroke", (d) => d.color).attr("stroke-dasharray", (d) => dash(d.dashes));
  }

  function draw(svg, numbers, given) {
    const { state, data, width, part } = given;
    const beside = width > 560;
    const size = { width: beside ? width / 2 - 56 : width - 60, height: beside ? 170 : 110 };
    const groups = Object.entries(data.groups), last = numbers.layers;
    drawNames(svg, groups, given);
    const panels = part(svg, "g.panels");
    panels.selectAll("*").remove();
    const chosen = [...groups.filter(([name]) => state.seen[name] && name !== state.group), [state.group, data.groups[state.group]]];
    const y = d3.scaleLog(SHARES.domain, [size.height, 0]);
    const panel = (i, x, options) => touch.panel(panels, {
      ...size, left: beside ? (i * width) / 2 + 46 : 50, top: beside ? 62 : 90 + i * 166, x, y, yTicks: SHARES.ticks,
      xNames: write, ...options,
    });
    const thick = ([name]) => (name === state.group ? 4 : 1.5);
    const addLines = (place, path) => place.selectAll("path.line").data(chosen).join("path").attr("class", "line").attr("d", path)
      .attr("fill", "none").attr("stroke", ([, { color }]) => color).attr("stroke-dasharray", ([, { dashes }]) => dash(dashes))
      .attr("stroke-width", thick);
    const layer = d3.scaleLinear([1, last], [4, size.width - 4]), height = (value) => y(Math.max(value, 1e-30));
    const within = panel(0, layer, { title: "share that differs between tokens", xTicks: [1, last / 2, last], xLabel: "layer" });
    const line = d3.line((_, step) => layer(numbers.numbered[step]), height);
    addLines(within, ([, { curves }]) => line(curves[state.depth].differ));
    within.append("path").attr("class", "rule").attr("d", line(numbers.rule)).attr("fill", "none")
      .attr("stroke", "#111").attr("stroke-width", 2).attr("stroke-dasharray", "1 5").attr("stroke-linecap", "round");
    // The last output's share, at the depths up to the chosen one.
    const deep = d3.scaleLog([data.depths[0], data.depths.at(-1)], [8, size.width - 8]);
    const ends = panel(1, deep, { title: "the same at the last layer", xTicks: [10, 100, 1000], xLabel: "layers in all" });
    const reached = data.depths.slice(0, state.depth + 1);
    addLines(ends, ([, { curves }]) => d3.line((depth) => deep(depth), (_, i) => height(curves[i].differ.at(-1)))(reached));
    ends.selectAll("circle").data(chosen.flatMap(([name, { color, curves }]) => reached.map((depth, i) => ({ name, color, depth, share: curves[i].differ.at(-1) }))))
      .join("circle").attr("cx", ({ depth }) => deep(depth)).attr("cy", ({ share }) => height(share)).attr("r", 4).attr("fill", ({ color }) => color);
  }

  /* Two digits that count; below LEAST the number says no more. */
  const digits = (key, value) => (value < LEAST ? "less than 0.00001"
    : `{${key}:${Math.max(2, 1 - Math.floor(Math.log10(value)))}}`);

  const tell = ({ layers, share, ruled, rule, powers }, { group }, data) =>
    `${data.groups[group].label}, ${write(layers)} layers: of the last output, ${digits("share", share)} differs between tokens; `
    + (rule.length ? `by the rule, ${digits("ruled", ruled)}. ` : "the rule is not for Pre-LN, whose skip grows. ")
    + `Largest over smallest gradient: ${powers > 3 ? "10 to the {powers:1}" : "{spread:1}"}.`;

  touch.figure("dn-inside", {
    caption: "Before training, medians of three seeds of the networks of the table. Left: the share that differs in each layer's output; "
      + "dotted: the rule, by which each of a layer's two blocks keeps 1/(1 + r²); it is too low, since r is shorter than by the rule. "
      + "Right: the share in the last output, at the depths that the slider has passed.",
    ask: "Go to 1,000 layers. Which blocks keep their differences? (Press their names.)",
    controls: {
      depth: { label: "Layers", value: ({ depths }) => depths.indexOf(10), min: 0, max: 5, step: 1,
        show: (i, data) => write(data.depths[i]) },
      group: { drawn: true, value: "post_norm" },
      seen: { drawn: true, value: () => ({ post_norm: true }) },
    },
    compute,
    height: (width) => (width > 560 ? 275 : 412),
    draw,
    tell,
  });
})();
