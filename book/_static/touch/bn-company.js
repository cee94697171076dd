/* The company of a sample: inputs of one feature, their outputs, and the outputs before a move. */
touch.figure("bn-company", {
  caption: "One sample can be moved, or several. Top: inputs. Middle: outputs. "
    + "Rings: outputs before anything moved. Orange: outputs that moved, and rings around moved inputs.",
  controls: {
    mode: { label: "Mode", options: { training: "training", evaluation: "evaluation" }, value: "training" },
    batch: { label: "Samples", min: 2, max: 32, step: 1, value: 8 },
    x: { drawn: true, min: -6, max: 6, step: 0.1, value: ({ x }) => x },
  },

  compute({ mode, batch, x }, { eps, x: start, running_mean, running_var }) {
    const normalize = (values) => {
      const mean = mode === "training" ? touch.mean(values) : running_mean;
      const variance = mode === "training" ? touch.mean(values.map((v) => (v - mean) ** 2)) : running_var;
      const std = Math.sqrt(variance + eps);
      return { mean, std, y: values.map((v) => (v - mean) / std) };
    };
    const now = normalize(x.slice(0, batch));
    const before = normalize(start.slice(0, batch)).y;
    const moved = before.filter((value, i) => Math.abs(value - now.y[i]) > 1e-4).length;
    return { ...now, before, batch, moved, touched: x.slice(0, batch).some((v, i) => v !== start[i]) };
  },

  height: () => 250,

  draw(svg, { mean, std, y, before }, { state, data, width, part, handle }) {
    const [top, middle, bottom] = [62, 142, 200];
    const scale = d3.scaleLinear([-6.2, 6.2], [8, width - 8]);
    part(svg, "text.inputs").attr("x", 8).attr("y", top - 46).text("inputs");
    part(svg, "text.outputs").attr("x", 8).attr("y", middle - 8).text("outputs");
    part(svg, "text.before").attr("x", 8).attr("y", bottom - 8).text("before");
    [top, middle].forEach((y0, i) => part(svg, `line.axis${i}`).attr("x1", 8).attr("x2", width - 8)
      .attr("y1", y0).attr("y2", y0).attr("stroke", "currentColor"));
    part(svg, "g.bottom").attr("transform", `translate(0,${bottom})`)
      .call(d3.axisBottom(scale).ticks(7).tickSize(6).tickPadding(8));
    // Where the mean lies and how far one standard deviation reaches.
    part(svg, "rect.spread").attr("x", scale(mean - std)).attr("width", scale(2 * std) - scale(0))
      .attr("y", top - 30).attr("height", 8).attr("fill", data.color).attr("opacity", 0.4);
    part(svg, "line.mean").attr("x1", scale(mean)).attr("x2", scale(mean)).attr("y1", top - 34)
      .attr("y2", top).attr("stroke", data.color).attr("stroke-width", 2);
    part(svg, "text.of").attr("x", scale(mean)).attr("y", top - 40).attr("text-anchor", "middle")
      .text(`${state.mode === "training" ? "" : "stored "}mean ± std`);
    const samples = y.map((value, index) => ({
      key: "x", index, value, old: before[index], moved: Math.abs(value - before[index]) > 1e-4 }));
    const color = (d) => (d.moved ? "#d55e00" : data.color);
    svg.selectAll("line.link").data(samples).join("line").attr("class", "link")
      .attr("x1", (d) => scale(state.x[d.index])).attr("x2", (d) => scale(d.value))
      .attr("y1", top).attr("y2", middle).attr("stroke", data.color).attr("opacity", 0.7);
    svg.selectAll("line.change").data(samples).join("line").attr("class", "change")
      .attr("x1", (d) => scale(d.value)).attr("x2", (d) => scale(d.old))
      .attr("y1", middle).attr("y2", bottom).attr("stroke", color).attr("stroke-width", 2);
    svg.selectAll("circle.ring").data(samples).join("circle").attr("class", "ring").attr("r", 4)
      .attr("cx", (d) => scale(d.old)).attr("cy", bottom).attr("fill", "#fff").attr("stroke", color);
    svg.selectAll("circle.output").data(samples).join("circle").attr("class", "output")
      .attr("r", 5).attr("cx", (d) => scale(d.value)).attr("cy", middle).attr("fill", color);
    svg.selectAll("circle.input").data(samples).join("circle").attr("class", "input")
      .attr("r", 8).attr("cx", (d) => scale(state.x[d.index])).attr("cy", top).attr("fill", data.color)
      .call(handle, {
        label: (d) => `Sample ${d.index + 1}`,
        said: (d) => `${state.x[d.index].toFixed(1)}, output ${d.value.toFixed(2)}`,
        where: scale.invert,
      });
    // The samples that were moved have a ring; before, the eighth says what to do.
    const away = samples.filter((d) => state.x[d.index] !== data.x[d.index]);
    svg.selectAll("circle.away").data(away).join("circle").attr("class", "away").attr("r", 11)
      .attr("cx", (d) => scale(state.x[d.index])).attr("cy", top).attr("fill", "none")
      .attr("stroke", "#d55e00").attr("stroke-width", 2).style("pointer-events", "none");
    part(svg, "text.drag").attr("x", scale(state.x[7])).attr("y", top - 16)
      .style("fill", "#d55e00").text(away.length || y.length < 8 ? "" : "drag →");
  },

  tell({ touched, moved, batch, y }, { mode }) {
    const chance = mode === "training" && moved && moved < batch ? " (by chance, the rest stayed)" : "";
    const count = touched ? `Outputs that moved: {moved:0} of {batch:0}${chance}. `
      : "Nothing has moved yet: drag a sample, or select it and press the arrow keys. ";
    if (mode === "training" && batch === 2 && Math.abs(y[0]) > 0.9) {
      return `${count}Two samples give {y.0:2} and {y.1:2}, wherever they lie: only their order is left.`;
    }
    return `${count}In ${mode}, the ${mode === "training" ? "" : "stored "}mean is {mean:2} and the standard deviation {std:2}.`;
  },
});
