/* The company of a sample: inputs of one feature above, their outputs below. */
touch.figure("bn-company", {
  controls: {
    mode: { label: "Mode", options: { training: "training", evaluation: "evaluation" }, value: "training" },
    batch: { label: "Samples", min: 2, max: 32, step: 1, value: 8 },
    x: { drawn: true, min: -6, max: 6, step: 0.1, value: (data) => data.x },
  },

  compute({ mode, batch, x }, { eps, x: start, running_mean, running_var }) {
    const normalize = (values) => {
      const average = (f) => values.reduce((sum, value) => sum + f(value), 0) / values.length;
      const mean = mode === "training" ? average((v) => v) : running_mean;
      const variance = mode === "training" ? average((v) => (v - mean) ** 2) : running_var;
      const std = Math.sqrt(variance + eps);
      return { mean, std, y: values.map((v) => (v - mean) / std) };
    };
    const now = normalize(x.slice(0, batch));
    const before = normalize(start.slice(0, batch));
    const left = before.y.filter((value, i) => Math.abs(value - now.y[i]) > 1e-4);
    return { ...now, left, batch, moved: left.length, touched: x.slice(0, batch).some((v, i) => v !== start[i]) };
  },

  height: () => 222,

  draw(svg, { mean, std, y, left }, { state, data, width, part, handle }) {
    const top = 62, bottom = 172;
    const scale = d3.scaleLinear([-6.2, 6.2], [8, width - 8]);
    const axis = d3.axisBottom(scale).ticks(7);
    part(svg, "text.inputs").attr("x", 8).attr("y", top - 46).text("inputs");
    part(svg, "g.top").attr("transform", `translate(0,${top})`).call(axis.tickSize(0).tickFormat(""));
    part(svg, "text.outputs").attr("x", 8).attr("y", bottom + 46).text("outputs");
    part(svg, "g.bottom").attr("transform", `translate(0,${bottom})`)
      .call(axis.tickSize(6).tickPadding(8).tickFormat(null));
    // Where the mean lies and how far one standard deviation reaches.
    part(svg, "rect.spread").attr("x", scale(mean - std)).attr("width", scale(2 * std) - scale(0))
      .attr("y", top - 30).attr("height", 8).attr("fill", data.color).attr("opacity", 0.4);
    part(svg, "line.mean").attr("x1", scale(mean)).attr("x2", scale(mean)).attr("y1", top - 34)
      .attr("y2", top).attr("stroke", data.color).attr("stroke-width", 2);
    part(svg, "text.of").attr("x", scale(mean)).attr("y", top - 40).attr("text-anchor", "middle")
      .text("mean ± std");
    const samples = y.map((value, index) => ({ key: "x", index, value }));
    svg.selectAll("line.link").data(samples).join("line").attr("class", "link")
      .attr("x1", (d) => scale(state.x[d.index])).attr("x2", (d) => scale(d.value))
      .attr("y1", top).attr("y2", bottom).attr("stroke", data.color).attr("opacity", 0.7);
    svg.selectAll("circle.ghost").data(left).join("circle").attr("class", "ghost").attr("r", 8)
      .attr("cx", scale).attr("cy", bottom).attr("fill", "none").attr("stroke", "currentColor")
      .attr("stroke-dasharray", "2 2");
    svg.selectAll("circle.output").data(samples).join("circle").attr("class", "output")
      .attr("r", 6).attr("cx", (d) => scale(d.value)).attr("cy", bottom).attr("fill", data.color);
    svg.selectAll("circle.input").data(samples).join("circle").attr("class", "input")
      .attr("r", 9).attr("cx", (d) => scale(state.x[d.index])).attr("cy", top)
      .attr("fill", data.color).attr("stroke", "var(--pst-color-background)")
      .call(handle, {
        label: (d) => `Sample ${d.index + 1}`,
        said: (d) => `${state.x[d.index].toFixed(1)}, output ${d.value.toFixed(2)}`,
        where: scale.invert,
      });
  },

  tell: (numbers, { mode }) => `In ${mode} the mean is {mean:2} and the standard deviation {std:2}. `
    + (numbers.touched ? "Outputs that moved: {moved:0} of {batch:0}." : "Drag a sample, or select "
      + "it and press the arrow keys."),
});
