/* The map: which rates and lengths of the warmup solve the task, and the runs behind each cell. */
(function () {
  "use strict";

  const SOLVED = "#0072b2", NOT = "#886633", COLD = "#5a5a5a", FULL = [0, 114, 178], MILLIONTH = 1e-6;
  const PANELS = [
    { title: "loss", key: "losses", cold: "coldLosses", domain: [0, 3.6], ticks: [0, 1, 2, 3] },
    { title: "token variance", key: "variances", cold: "coldVariances",
      domain: [1e-15, 2], ticks: [1e-12, 1e-8, 1e-4, 1] },
  ];

  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
  const middle = (runs) => runs[0].map((_, step) => median(runs.map((run) => run[step])));

  function compute(state, { lengths, rates, cells, steps }) {
    const { ends, lost, updates, losses, variances } = cells[state.rate][state.length];
    const cold = cells[state.rate][0], variance = middle(variances), lowest = Math.min(...variance);
    return {
      rate: rates[state.rate], length: lengths[state.length], losses, variances, ends,
      least: variances.map((run) => Math.min(...run)),
      coldLosses: middle(cold.losses), coldVariances: middle(cold.variances),
      solved: ends.filter(Boolean).length, lost, updates: updates ?? 0,
      lowest: steps[variance.indexOf(lowest)], power: Math.log10(lowest),
    };
  }

  const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] };

  function drawMap(svg, { state, data, width, moving, change }) {
    const left = 60, top = 24, height = 30, wide = (width - left) / data.lengths.length;
    svg.append("text").attr("x", left).attr("y", 14).text("seeds of 5 that solve it: choose a cell");
    const cells = data.rates.flatMap((rate, i) => data.lengths.map((length, j) => ({ i, j })));
    const y = (i) => top + (data.rates.length - 1 - i) * height;
    const choose = (i, j) => data.cells[i]?.[j] && change({ rate: i, length: j });
    const places = svg.append("g").selectAll("g").data(cells).join("g").attr("class", "touch-press")
      .attr("transform", ({ i, j }) => `translate(${left + j * wide},${y(i)})`)
      .on("click", (_, { i, j }) => { svg.node().focus({ preventScroll: true }); choose(i, j); });
    svg.attr("tabindex", -1).style("outline", "none").on("keydown", (event) => { // after a click the arrows go on
      const way = KEYS[event.key];
      if (!way) return;
      event.preventDefault();
      choose(state.rate + way[0], state.length + way[1]);
    });
    // A cell shows its count once it was chosen, and not while a slider passes it.
    if (!moving) state.seen[[state.rate, state.length]] = true;
    const solved = ({ i, j }) => (state.seen[[i, j]] ? data.cells[i][j].ends.filter(Boolean).length : 0);
    const shade = (d) => `rgb(${FULL.map((c) => Math.round(255 - (255 - c) * (solved(d) / 5)))})`;
    const lost = ({ i, j }) => data.cells[i][j].lost;
    const say = (d) => (state.seen[[d.i, d.j]] ? solved(d) + (lost(d) ? `, ${lost(d)} lost` : "") : "?");
    places.append("rect").attr("width", wide - 3).attr("height", height - 3).attr("rx", 4).attr("fill", shade)
      .attr("stroke", "#767676");
    // along this line the rate grows by as much in each update; it passes above the counts
    const center = ([i, j]) => [left + (j + 0.5) * wide - 1, y(i) + height / 2 - 1];
    const rise = d3.line()([[0.75, 0.75], [3.25, 3.25]].map(center).map(([x, at]) => [x - wide / 6, at - height / 6]));
    const dashed = (place, d) => [["#fff", 4, null], ["#333", 2, "6 4"]].forEach(([color, thick, dashes]) =>
      place.append("path").attr("d", d).attr("stroke", color).attr("stroke-width", thick).attr("stroke-dasharray", dashes)
        .style("pointer-events", "none"));
    dashed(svg, rise);
    const below = y(0) + height + 32;
    dashed(svg, `M0,${below - 4}h26`);
    svg.append("text").attr("x", 31).attr("y", below).text("about +0.0003 per update");
    svg.append("g").attr("text-anchor", "middle").selectAll("text").data(cells).join("text")
      .attr("x", ({ i, j }) => center([i, j])[0]).attr("y", ({ i, j }) => center([i, j])[1] + 5)
      .style("fill", (d) => (solved(d) === 5 ? "#fff" : "#111")).style("pointer-events", "none")
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
    svg.append("text").attr("x", width).attr("y", below).attr("text-anchor", "end")
      .text(width > 560 ? "length of the warmup, updates" : "warmup, updates");
  }

  /* All runs of the cells that were opened, in a row for each rate; those of the chosen cell are large. */
  function drawDots(svg, at, { state, data }) {
    const x = d3.scaleLog([1e-15, 0.1], [4, at.width - 4]), y = d3.scaleLinear([-0.5, 3.5], [at.height, 0]);
    const place = touch.panel(svg, { ...at, x, y, title: "all runs opened", xTicks: [1e-12, 1e-9, 1e-6, 0.001], yTicks: [],
      xLabel: "least token variance" });
    place.append("line").attr("x1", x(MILLIONTH)).attr("x2", x(MILLIONTH)).attr("y2", at.height).attr("stroke", "#111");
    const chosen = ({ i, j }) => i === state.rate && j === state.length;
    const runs = data.rates.flatMap((_, i) => data.lengths.flatMap((__, j) => (!state.seen[[i, j]] ? []
      : data.cells[i][j].variances.map((run, k) => ({ i, j, least: Math.min(...run), solved: data.cells[i][j].ends[k] })))));
    svg.append("g").attr("text-anchor", "end").selectAll("text").data(data.rates).join("text").attr("x", at.left - 5)
      .attr("y", (_, i) => at.top + y(i) + 4).style("font-size", "11px").text(String);
    place.selectAll("circle").data([...runs.filter((d) => !chosen(d)), ...runs.filter(chosen)]).join("circle")
      .attr("cx", (d) => x(d.least)).attr("cy", (d) => y(d.i) + (d.j - 2) * at.height / 36)
      .attr("r", (d) => (chosen(d) ? Math.min(6, at.height / 12) : 3)).attr("fill", (d) => (d.solved ? SOLVED : "#fff"))
      .attr("stroke", (d) => (d.solved ? "#fff" : NOT)).attr("stroke-width", (d) => (d.solved ? 0.5 : 1.5));
  }

  function draw(svg, numbers, given) {
    const { data, width } = given;
    svg.selectAll("*").remove();
    drawMap(svg, given);
    const beside = width > 560;
    const size = { width: beside ? width / 3 - 52 : width - 60, height: beside ? 150 : 54 }; // stacked, two share an axis
    const places = beside ? [0, 1, 2].map((i) => ({ left: (i * width) / 3 + 44, top: 220 }))
      : [206, 282, 390].map((top) => ({ left: 50, top }));
    const x = d3.scaleLinear([0, data.steps.length - 1], [4, size.width - 4]);
    PANELS.forEach(({ title, key, cold, domain, ticks }, i) => {
      const y = (domain[0] ? d3.scaleLog : d3.scaleLinear)(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, ...places[i], x, y,
        title, xTicks: beside || i ? [0, 1, 3, 5, 7, 9, 11] : [], yTicks: beside ? ticks : ticks.filter((_, k) => k % 2),
        xLabel: beside || i ? "updates" : "",
        xNames: (step) => data.steps[step],
      });
      if (i) {
        place.append("line").attr("x2", size.width).attr("y1", y(MILLIONTH)).attr("y2", y(MILLIONTH)).attr("stroke", "#111");
        place.append("text").attr("x", 4).attr("y", y(MILLIONTH) + 12)
          .style("font-size", "11px").text("a millionth");
      }
      const line = d3.line((_, step) => x(step), (value) => y(Math.max(value, 1e-30)));
      const add = (runs, look) => place.append("g").selectAll("path").data(runs).join("path")
        .attr("d", line).attr("fill", "none").each(function (_, k) { d3.select(this).call(look, k); });
      add([numbers[cold]], (path) => path.attr("stroke", COLD).attr("stroke-width", 2).attr("stroke-dasharray", "2 3"));
      add(numbers[key], (path, k) => path.attr("stroke", numbers.ends[k] ? SOLVED : NOT)
        .attr("stroke-width", numbers.ends[k] ? 2 : 1.5).attr("stroke-dasharray", numbers.ends[k] ? null : "6 2"));
    });
    drawDots(svg, { ...size, ...places[2] }, given);
  }

  const tell = ({ solved, lost, updates, lowest }, _, { steps }) => "{solved:0} of 5 seeds solve the task"
    + (solved ? `, in the median after {updates:0} updates${updates > steps.at(-1) ? ", beyond the curves" : ""}` : "")
    + (lost ? "; {lost:0} of these lose it again by update 300" : "")
    + ". The token variance is least"
    + (lowest === steps.at(-1) ? " at the end of the curves" : " after {lowest:0} updates") + ", 10 to the {power:1} (medians).";

  touch.figure("warmup-map", {
    caption: "Recorded, Post-LN: seeds of five that solve the task within 600 updates (the table: 300). Curves: the cell's runs, "
      + "up to update 300; dotted: the median without warmup. Last: all runs of the cells you opened, a row for each rate. "
      + "Blue: it solves the task; brown, dashed or open: it does not.",
    controls: {
      rate: { label: "Peak rate", value: 2, min: 0, max: 3, step: 1,
        show: (i, data) => String(data.rates[i]) },
      seen: { drawn: true, value: () => ({}) },
      length: { label: "Warmup", value: 0, min: 0, max: 4, step: 1,
        show: (i, data) => (data.lengths[i] ? `${data.lengths[i]} updates` : "none") },
    },
    compute,
    height: (width) => (width > 560 ? 410 : 480),
    draw,
    tell,
  });
})();
