/* The cliff: the variance of two numbers by two formulas, each step rounded to a dtype.
   Products and sums of these dtypes are exact in float64 or rounded harmlessly before they are
   rounded again, so that one rounding of the float64 result is what the dtype gives. */
touch.figure("num-cliff", {
  caption: "The variance of two numbers, one below and one above an offset. It should be 1. Each step is rounded; sums are kept "
    + "in float32. Orange: wrong digits. Move the offset back until one pass is right.",
  controls: {
    dtype: { label: "Dtype", options: { float32: "float32", bfloat16: "bfloat16", float16: "float16" }, value: "float32" },
    seen: { drawn: true, value: () => ({}) },
    at: { label: "Offset", min: 0, max: 42, step: 1,
      value: ({ offsets }) => offsets.indexOf(10000), show: (i, data) => data.offsets[i].toLocaleString("en-US") },
  },

  compute({ dtype, at }, { offsets, dtypes }) {
    const { bits, lowest, largest } = dtypes[dtype]; // significant bits, exponent of the least normal
    const round = (value) => {
      if (!Number.isFinite(value) || value === 0) return value;
      let exponent = Math.floor(Math.log2(Math.abs(value)));
      if (2 ** exponent > Math.abs(value)) exponent -= 1; // a logarithm that was rounded up
      exponent = Math.max(exponent, lowest);
      const step = 2 ** (exponent - bits + 1);
      const steps = value / step; // exact: a power of two
      const below = Math.floor(steps);
      const even = below % 2 === 0 ? below : below + 1;
      const nearest = steps - below === 0.5 ? even : Math.round(steps);
      return Math.abs(nearest * step) > largest ? Math.sign(value) * Infinity : nearest * step;
    };
    const mean = ([a, b]) => round((a + b) / 2); // sums of 16-bit numbers are kept in float32
    const variance = (offset) => {
      const x = [round(offset - 1), round(offset + 1)];
      const squares = x.map((v) => round(v * v));
      const middle = mean(x);
      const differences = x.map((v) => round(v - middle));
      const squaredMean = round(middle * middle);
      return {
        x, squares, squaredMean, differences, mean: middle, meanSquare: mean(squares),
        onePass: round(mean(squares) - squaredMean),
        twoPasses: mean(differences.map((v) => round(v * v))),
      };
    };
    const all = offsets.map(variance);
    return {
      ...all[at],
      offset: offsets[at],
      curveOne: all.map((one) => one.onePass),
      curveTwo: all.map((one) => one.twoPasses),
    };
  },

  height: () => 220,

  draw(svg, numbers, { state, data, width, below, part }) {
    const { offset } = numbers;
    const x = d3.scaleLog([1, data.offsets.at(-1)], [44, width - 34]);
    const y = d3.scaleLinear([-0.3, 4], [158, 26]).clamp(true); // what lies beyond is drawn at the edge
    const nothing = 178, bottom = 190;
    const decades = [1, 10, 100, 1000, 10000, 100000, 1000000].filter((v, i) => width > 560 || i % 2 === 0);
    part(svg, "g.x").attr("transform", `translate(0,${bottom})`)
      .call(d3.axisBottom(x).tickValues(decades).tickFormat((v) => v.toLocaleString("en-US")));
    part(svg, "g.y").attr("transform", "translate(38,0)")
      .call(d3.axisLeft(y).tickValues([0, 1, 2, 4]).tickFormat((v) => (v === 4 ? "≥ 4" : v)));
    part(svg, "text.name").attr("x", 48).attr("y", 10).text("variance:  × one pass   ○ two passes");
    part(svg, "line.true").attr("x1", 44).attr("x2", width - 34).attr("y1", y(1)).attr("y2", y(1))
      .attr("stroke", "var(--pst-color-text-muted)").attr("stroke-dasharray", "2 3");
    part(svg, "text.quiet").attr("x", 44).attr("y", nothing + 4).text("not a number");
    part(svg, "line.now").attr("x1", x(offset)).attr("x2", x(offset)).attr("y1", 26).attr("y2", bottom)
      .attr("stroke", "var(--pst-color-primary)").attr("stroke-width", 2);
    // The offsets that were chosen; what is no number has a row of its own.
    state.seen[state.at] = true;
    const shown = (curve) => curve.map((v, i) => [data.offsets[i], Number.isNaN(v) ? nothing : y(v)])
      .filter((_, i) => state.seen[i]);
    svg.selectAll("path.one").data(shown(numbers.curveOne)).join("path").attr("class", "one")
      .attr("d", ([o, at]) => `M${x(o) - 4},${at - 4}l8,8m0,-8l-8,8`)
      .attr("stroke", "var(--pst-color-primary)").attr("stroke-width", 2);
    svg.selectAll("circle.two").data(shown(numbers.curveTwo)).join("circle").attr("class", "two")
      .attr("cx", ([o]) => x(o)).attr("cy", ([, at]) => at).attr("r", 5).attr("fill", "none")
      .attr("stroke", "currentColor").attr("stroke-width", 1.5);

    const [a, b] = [offset - 1, offset + 1];
    const rows = [
      ["first", a, "x.0"], ["second", b, "x.1"],
      ["first squared", a * a, "squares.0"], ["second squared", b * b, "squares.1"],
      ["mean of squares", offset ** 2 + 1, "meanSquare"], ["− squared mean", offset ** 2, "squaredMean"],
      ["= one pass", 1, "onePass"],
      ["first − mean", -1, "differences.0"], ["second − mean", 1, "differences.1"],
      ["two passes", 1, "twoPasses"],
    ];
    const find = (path) => path.split(".").reduce((value, key) => value[key], numbers);
    const write = (v) => (Number.isNaN(v) ? "not a number" : Number.isFinite(v)
      ? v.toLocaleString("en-US").replace("-", "−") : "∞");
    const table = part(below, "table.touch-digits");
    part(table, "tr.touch-head").selectAll("th").data(["", "exactly", "as computed"]).join("th")
      .attr("scope", (d, i) => (i ? "col" : null)).text((d) => d);
    const lines = table.selectAll("tr.touch-row").data(rows).join("tr").attr("class", "touch-row")
      .classed("touch-result", ([name]) => name.includes("pass"));
    lines.selectAll("th").data(([name]) => [name]).join("th").attr("scope", "row").text((d) => d);
    lines.selectAll("td.exact").data(([, exact]) => [exact]).join("td").attr("class", "exact").text(write);
    lines.selectAll("td.found").data(([, exact, path]) => [[write(exact), path]]).join("td")
      .attr("class", "found").attr("data-number", ([, path]) => path)
      .selectAll("span").data(([exact, path]) => {
        const found = write(find(path)), late = exact.length - found.length;
        return [...found].map((digit, i) => [digit, digit === exact[i + late]]);
      }).join("span").attr("class", ([, right]) => (right ? null : "touch-wrong")).text(([digit]) => digit);
  },

  tell({ offset, x, squares, onePass, twoPasses }, { dtype }) {
    const [one, two] = [onePass, twoPasses].map((v) => (Number.isInteger(v) ? 0 : 2));
    const why = x.includes(Infinity) ? " The inputs overflow already."
      : (x[0] === offset - 1 && x[1] === offset + 1 ? "" : " The inputs are rounded already.")
        + (squares.includes(Infinity) ? " The squares overflow." : "");
    return `Around ${offset.toLocaleString("en-US")} in ${dtype}, one pass gives {onePass:${one}} and two passes give `
      + `{twoPasses:${two}}. The variance is 1.${why}`;
  },
});
