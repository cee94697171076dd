/* The stream: what each layer of a deep Transformer passes on, and what gradient reaches it. */
(function () {
  "use strict";

  const PANELS = [
    { title: "percent that differ", key: "differ", unit: 100, domain: [0.1, 130], ticks: [0.1, 1, 10, 100] },
    { title: "gradient", key: "gradients", unit: 1, domain: [0.001, 4], ticks: [0.001, 0.01, 0.1, 1] },
  ];

  const write = (count) => count.toLocaleString("en-US");
  const dash = (dashes) => dashes.map((far) => 2 * far).join(" ") || null;

  function compute({ group, depth }, data) {
    const layers = data.depths[depth];
    const { gradients, differ } = data.groups[group].curves[depth];
    return {
      group, layers, numbered: data.layers[depth], gradients, differ, first: gradients[0], last: gradients.at(-1),
      powers: Math.log10(gradients.at(-1) / gradients[0]), percent: 100 * differ.at(-1),
    };
  }

  /* Which line is whose: as many names in a row as it holds. */
  function drawNames(svg, groups, chosen, width) {
    let x = 8, y = 14;
    groups.forEach(([name, { label, color, dashes }]) => {
      const wide = 48 + 8 * label.length;
      if (x + wide > width) [x, y] = [8, y + 20];
      svg.append("line").attr("x1", x).attr("x2", x + 28).attr("y1", y - 4).attr("y2", y - 4)
        .attr("stroke", color).attr("stroke-width", name === chosen ? 5 : 2).attr("stroke-dasharray", dash(dashes));
      svg.append("text").attr("x", x + 32).attr("y", y).text(label)
        .attr("font-weight", name === chosen ? "bold" : null);
      x += wide;
    });
  }

  function draw(svg, numbers, { state, data, width }) {
    svg.selectAll("*").remove();
    const beside = width > 560;
    const size = { width: beside ? width / 2 - 56 : width - 60, height: beside ? 170 : 110 };
    const last = numbers.layers;
    const groups = Object.entries(data.groups).filter(([name]) => name !== state.group);
    drawNames(svg, Object.entries(data.groups), state.group, width);
    PANELS.forEach(({ title, key, unit, domain, ticks }, i) => {
      const x = d3.scaleLinear([1, last], [4, size.width - 4]);
      const y = d3.scaleLog(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: beside ? (i * width) / 2 + 46 : 50, top: beside ? 52 : 68 + i * 166,
        x, y, title, xTicks: [1, last / 2, last], yTicks: ticks, xLabel: "layer",
        xNames: write,
      });
      const line = d3.line((_, step) => x(numbers.numbered[step]), (value) => y(Math.max(unit * value, 1e-30)));
      place.selectAll("path").data([...groups, [state.group, data.groups[state.group]]]).join("path")
        .attr("d", ([, { curves }]) => line(curves[state.depth][key])).attr("fill", "none")
        .attr("stroke", ([, { color }]) => color).attr("stroke-dasharray", ([, { dashes }]) => dash(dashes))
        .attr("stroke-width", ([name]) => (name === state.group ? 4 : 1.5));
    });
  }

  const tell = ({ layers, powers, percent }, { group }, data) =>
    `${data.groups[group].label}, ${write(layers)} layers, before training: `
    + (percent < 0.01 ? "of the last output, less than a hundredth of a percent differs between tokens. "
      : "of the last output, {percent:2} percent differ between tokens. ")
    + (powers > 3 ? "From the last layer to the first, the gradient shrinks by {powers:1} powers of ten."
      : "The gradient is {first:3} at the first layer and {last:3} at the last.");

  touch.figure("dn-inside", {
    caption: "Recorded, before training: which percent of a layer's output differ between tokens, and the gradient at the layer's "
      + "last matrix. Which two blocks keep the percent high and the gradient level at every depth?",
    controls: {
      group: { label: "Block", value: "post_norm", options: {
        post_norm: "Post-LN", pre_norm: "Pre-LN", deep_norm: "DeepNorm", "alpha only": "α only",
        "beta only": "β only",
      } },
      depth: { label: "Layers", value: ({ depths }) => depths.indexOf(50), min: 0, max: 5, step: 1,
        show: (i, data) => write(data.depths[i]) },
    },
    compute,
    height: (width) => (width > 560 ? 265 : 390),
    draw,
    tell,
  });
})();
