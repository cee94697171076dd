/* The map: which rates and lengths of the warmup solve the task, and the runs behind each cell. */
(function () {
  "use strict";

  const COLOR = "#886633", COLD = "#5a5a5a", FULL = [0, 114, 178];
  const PANELS = [
    { title: "loss", key: "losses", cold: "coldLosses", domain: [0, 3.6], ticks: [0, 1, 2, 3] },
    { title: "token variance", key: "variances", cold: "coldVariances",
      domain: [1e-15, 2], ticks: [1e-12, 1e-8, 1e-4, 1] },
    { title: "gradient, bottom layer", key: "gradients", cold: "coldGradients",
      domain: [1e-6, 10], ticks: [1e-6, 1e-4, 0.01, 1] },
  ];

  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

  function compute(state, { lengths, rates, cells, steps }) {
    const { solved, lost, updates, losses, variances, gradients } = cells[state.rate][state.length];
    const cold = cells[state.rate][0];
    const middle = steps.map((_, step) => median(variances.map((run) => run[step])));
    const least = Math.min(...middle);
    return {
      rate: rates[state.rate], length: lengths[state.length], losses, variances, gradients,
      coldLosses: cold.losses, coldVariances: cold.variances, coldGradients: cold.gradients,
      solved, lost, updates: updates ?? 0, lowest: steps[middle.indexOf(least)], power: Math.log10(least),
      end: median(losses.map((run) => run.at(-1))),
    };
  }

  function drawMap(svg, { state, data, width, change }) {
    const left = 60, top = 24, height = 30, wide = (width - left) / data.lengths.length;
    svg.append("text").attr("x", left).attr("y", 14).text("seeds of 5 that solve it: choose a cell");
    const cells = data.rates.flatMap((rate, i) => data.lengths.map((length, j) => ({ i, j })));
    const y = (i) => top + (data.rates.length - 1 - i) * height;
    const places = svg.append("g").selectAll("g").data(cells).join("g").attr("class", "touch-press")
      .attr("transform", ({ i, j }) => `translate(${left + j * wide},${y(i)})`)
      .on("click", (_, { i, j }) => change({ rate: i, length: j }));
    // A cell shows its count once it was chosen.
    state.seen[[state.rate, state.length]] = true;
    const cell = ({ i, j }) => (state.seen[[i, j]] ? data.cells[i][j] : { solved: 0 });
    const shade = (d) => `rgb(${FULL.map((c) => Math.round(255 - (255 - c) * (cell(d).solved / 5)))})`;
    const say = (d) => (state.seen[[d.i, d.j]] ? cell(d).solved + (cell(d).lost ? `, ${cell(d).lost} lost` : "") : "?");
    places.append("rect").attr("width", wide - 3).attr("height", height - 3).attr("rx", 4).attr("fill", shade)
      .attr("stroke", "#767676");
    // along this line the rate grows by as much in each update; it leaves the counts free
    const middle = ([i, j]) => [left + (j + 0.5) * wide - 1, y(i) + height / 2 - 1];
    svg.append("g").selectAll("path").data([1.22, 2.22]).join("path")
      .attr("d", (k) => d3.line()([[k, k], [k + 0.56, k + 0.56]].map(middle))).attr("stroke", "#e08214").attr("stroke-width", 2)
      .attr("stroke-dasharray", "6 4").style("pointer-events", "none");
    svg.append("g").attr("text-anchor", "middle").selectAll("text").data(cells).join("text")
      .attr("x", ({ i, j }) => middle([i, j])[0]).attr("y", ({ i, j }) => middle([i, j])[1] + 5)
      .style("fill", (d) => (cell(d).solved === 5 ? "#fff" : "#111")).style("paint-order", "stroke")
      .attr("stroke", shade).attr("stroke-width", 5).style("pointer-events", "none")
      .style("font-size", width > 560 ? null : "11px").text(say);
    places.filter(({ i, j }) => i === state.rate && j === state.length).append("rect")
      .attr("width", wide - 3).attr("height", height - 3).attr("rx", 4).attr("fill", "none")
      .attr("stroke", "#d55e00").attr("stroke-width", 4);
    svg.append("g").attr("text-anchor", "end").selectAll("text").data(data.rates).join("text")
      .attr("x", left - 8).attr("y", (_, i) => y(i) + height / 2 + 4).text(String);
    svg.append("g").attr("text-anchor", "middle").selectAll("text").data(data.lengths).join("text")
      .attr("x", (_, j) => left + (j + 0.5) * wide).attr("y", y(0) + height + 14)
      .text((length) => length || "none");
    svg.append("text").attr("x", 0).attr("y", 14).text("rate");
    svg.append("text").attr("x", width).attr("y", y(0) + height + 32).attr("text-anchor", "end")
      .text("length of the warmup, updates");
  }

  function draw(svg, numbers, given) {
    const { data, width } = given;
    svg.selectAll("*").remove();
    drawMap(svg, given);
    const beside = width > 560;
    const size = { width: beside ? width / 3 - 52 : width - 60, height: beside ? 150 : 56 }; // stacked, they share the lowest axis
    const x = d3.scaleLinear([0, data.steps.length - 1], [4, size.width - 4]);
    PANELS.forEach(({ title, key, cold, domain, ticks }, i) => {
      const y = (domain[0] ? d3.scaleLog : d3.scaleLinear)(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: beside ? (i * width) / 3 + 44 : 50, top: (beside ? 220 : 214) + (beside ? 0 : i * 80), x, y,
        title, xTicks: beside || i === 2 ? [0, 1, 3, 5, 7, 9, 11] : [], yTicks: beside ? ticks : ticks.filter((_, k) => k % 2),
        xLabel: beside || i === 2 ? "updates" : "",
        xNames: (step) => data.steps[step],
      });
      const line = d3.line((_, step) => x(step), (value) => y(Math.max(value, 1e-30)));
      const add = (runs, color, dashes) => place.append("g").selectAll("path").data(runs).join("path")
        .attr("d", line).attr("fill", "none").attr("stroke", color).attr("stroke-width", 1.8)
        .attr("stroke-dasharray", dashes);
      add(numbers[cold], COLD, "3 3");
      if (numbers.length) add(numbers[key], COLOR, null);
    });
  }

  const tell = ({ solved, lost }) => "{solved:0} of 5 seeds solve the task"
    + (solved ? ", in the median after {updates:0} updates" : "")
    + (lost ? "; {lost:0} of these lose it again by update 300" : "")
    + ". Medians: the least token variance is 10 to the {power:1}, after {lowest:0} updates; the loss at update 300 is {end:3}.";

  touch.figure("warmup-map", {
    caption: "Recorded, Post-LN: seeds of five that solve the task within 600 updates. They are not the runs of the table, so "
      + "medians differ a little. Curves: the runs of the cell, up to update 300. Dotted: without warmup. Dashed: the rate rises equally fast.",
    controls: {
      rate: { label: "Peak rate", value: 2, min: 0, max: 3, step: 1,
        show: (i, data) => String(data.rates[i]) },
      seen: { drawn: true, value: () => ({}) },
      length: { label: "Warmup", value: 0, min: 0, max: 4, step: 1,
        show: (i, data) => (data.lengths[i] ? `${data.lengths[i]} updates` : "none") },
    },
    compute,
    height: (width) => (width > 560 ? 410 : 468),
    draw,
    tell,
  });
})();
