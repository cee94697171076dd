/* The stream: what each layer of a deep Transformer passes on, and what gradient reaches it. */
(function () {
  "use strict";

  const PANELS = [
    { title: "size of the stream", key: "sizes", domain: [0.7, 40], ticks: [1, 3, 10, 30] },
    { title: "gradient", key: "gradients", domain: [0.001, 2], ticks: [0.001, 0.01, 0.1, 1] },
    { title: "share that differs", key: "differ", domain: [0.001, 1.3], ticks: [0.001, 0.01, 0.1, 1] },
  ];

  function compute({ group, depth }, data) {
    const layers = data.depths[depth];
    const here = data.groups[group].curves[depth];
    return {
      group, layers, numbered: data.layers[depth], ...here, size: here.sizes.at(-1),
      first: here.gradients[0], last: here.gradients.at(-1),
      powers: Math.log10(here.gradients.at(-1) / here.gradients[0]), percent: 100 * here.differ.at(-1),
    };
  }

  function draw(svg, numbers, { state, data, width }) {
    svg.selectAll("*").remove();
    const beside = width > 560;
    const size = { width: beside ? width / 3 - 52 : width - 60, height: 170 };
    const last = numbers.layers;
    PANELS.forEach(({ title, key, domain, ticks }, i) => {
      const x = d3.scaleLinear([1, last], [4, size.width - 4]);
      const y = d3.scaleLog(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: beside ? (i * width) / 3 + 42 : 50, top: beside ? 24 : 24 + i * 230,
        x, y, title, xTicks: [1, last / 2, last], yTicks: ticks, xLabel: "layer",
      });
      const line = d3.line((_, step) => x(numbers.numbered[step]), (value) => y(Math.max(value, 1e-30)));
      const groups = Object.entries(data.groups).filter(([name]) => name !== state.group);
      place.selectAll("path").data([...groups, [state.group, data.groups[state.group]]]).join("path")
        .attr("d", ([, { curves }]) => line(curves[state.depth][key])).attr("fill", "none")
        .attr("stroke", ([, { color }]) => color)
        .attr("stroke-width", ([name]) => (name === state.group ? 3 : 1));
    });
  }

  const tell = ({ layers, powers, percent }, { group }, data) =>
    `${data.groups[group].label}, ${layers} layers, before training: the stream leaves the last layer `
    + "with a size of {size:2}. "
    + (powers > 3 ? "From the last layer to the first the gradient shrinks by {powers:1} powers of ten."
      : "The gradient is {first:3} at the first layer and {last:3} at the last.")
    + (percent < 0.01 ? " Of the last output, less than a hundredth of a percent differs between tokens."
      : " Of the last output, {percent:2} percent differ between tokens.")
    + " Thin lines: the other four, in their colors.";

  touch.figure("dn-inside", {
    controls: {
      group: { label: "Block", value: "post_norm", options: {
        post_norm: "Post-LN", pre_norm: "Pre-LN", deep_norm: "DeepNorm", "alpha only": "alpha only",
        "beta only": "beta only",
      } },
      depth: { label: "Layers", value: 4, min: 0, max: 5, step: 1,
        show: (i, data) => String(data.depths[i]) },
    },
    compute,
    height: (width) => (width > 560 ? 240 : 690),
    draw,
    tell,
  });
})();
