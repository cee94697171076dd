/* The valley: samples of two columns, and the bowl of a linear model that learns from them. */
(function () {
  "use strict";

  const COLOR = "#332288", PATH = "#d55e00", QUIET = "#767676", DRAWN = 30;

  const { mean } = touch;
  const product = (a, b) => mean(a.map((v, i) => v * b[i]));

  /* The columns after each stage; the later ones start from those before. */
  const STAGES = {
    stored: ([a, b]) => [a, b.map((v) => 10 * v)],
    meters: ([a, b]) => [a, b],
    standardized: (columns) => columns.map((x) => {
      const center = x.map((v) => v - mean(x)), std = Math.sqrt(product(center, center));
      return center.map((v) => v / std);
    }),
    // after standardizing, the principal axes are the diagonals
    rotated: (columns) => {
      const [a, b] = STAGES.standardized(columns);
      return [a.map((v, i) => (v + b[i]) / Math.SQRT2), a.map((v, i) => (b[i] - v) / Math.SQRT2)];
    },
    whitened: (columns) => STAGES.standardized(STAGES.rotated(columns)),
  };

  // Of the weights, minus the best: in decimeters a weight is a tenth, and a rotation turns the weights, too.
  const ROTATED = [4 / Math.SQRT2, -2 / Math.SQRT2];
  const START = { stored: [3, 0.1], rotated: ROTATED, whitened: ROTATED };

  function compute({ stage, correlation }, { first, other }) {
    const rest = Math.sqrt(1 - correlation ** 2);
    const second = first.map((v, i) => 2 + correlation * (v - 2) + rest * (other[i] - 2));
    const [a, b] = STAGES[stage]([first, second]);
    const [p, q, r] = [product(a, a), product(a, b), product(b, b)]; // the bowl: [[p, q], [q, r]]
    const root = Math.hypot((p - r) / 2, q), steep = (p + r) / 2 + root;
    const flat = (p * r - q * q) / steep;
    const loss = ([u, v]) => (p * u * u + 2 * q * u * v + r * v * v) / 2;
    let weights = START[stage] ?? [3, 1];
    const path = [weights], enough = 1e-6 * loss(weights);
    let steps = 0;
    while (loss(weights) >= enough) {
      const [u, v] = weights;
      weights = [u - (p * u + q * v) / steep, v - (q * u + r * v) / steep];
      steps += 1;
      if (steps <= DRAWN) path.push(weights);
    }
    return { a, b, correlation: product(a.map((v) => v - mean(a)), b.map((v) => v - mean(b)))
      / Math.sqrt((p - mean(a) ** 2) * (r - mean(b) ** 2)), steep, flat, condition: steep / flat, steps, path };
  }

  /* A square plot to scale that holds some points and the origin. */
  function drawSquare(svg, { left, side, points, title, names }) {
    const far = 1.1 * Math.max(...points.flat().map(Math.abs));
    const least = Math.min(...points.flat()) < -0.02 * far ? -far : -0.08 * far;
    const x = d3.scaleLinear([least, far], [0, side]), y = d3.scaleLinear([least, far], [side, 0]);
    const place = svg.append("g").attr("transform", `translate(${left},24)`);
    place.append("text").attr("y", -8).text(title);
    const inside = place.append("svg").attr("width", side).attr("height", side);
    inside.append("rect").attr("width", side).attr("height", side).attr("fill", "#fff").attr("stroke", QUIET);
    inside.append("path").attr("d", `M0,${y(0)}H${side}M${x(0)},0V${side}`).attr("stroke", "#ccc");
    const ticks = (axis, far) => place.append("g").attr("transform", `translate(0,${far})`)
      .call(axis.ticks(4).tickSize(3)).selectAll("text").style("font-size", "11px");
    ticks(d3.axisBottom(x), side);
    ticks(d3.axisLeft(y), 0);
    const name = (said) => place.append("text").attr("class", "quiet").attr("text-anchor", "end")
      .style("font-size", "11px").text(said);
    name(names[0]).attr("x", side).attr("y", side + 29);
    name(names[1]).attr("transform", "translate(-24,0) rotate(-90)");
    return { inside, x, y };
  }

  const findSide = (width) => Math.min(240, width / 2 - 37);

  function draw(svg, { a, b, steep, flat, path }, { state, width }) {
    svg.selectAll("*").remove();
    const side = findSide(width), gap = 37, left = width / 2 - side;
    const samples = a.map((v, i) => [v, b[i]]);
    const plot = drawSquare(svg, { left, side, points: samples, title: "samples", names: ["first", "second"] });
    plot.inside.selectAll("circle").data(samples).join("circle").attr("r", 2.5).attr("fill", COLOR)
      .attr("cx", ([u]) => plot.x(u)).attr("cy", ([, v]) => plot.y(v));
    const bowl = drawSquare(svg, { left: left + side + gap, side, points: [[3.2, 3.2], [-3.2, 0]], title: "loss over the weights",
      names: ["first weight − best", "second weight − best"] });
    // Rings of equal loss: an ellipse, whose long axis lies along the flattest direction.
    const [p, q, r] = [product(a, a), product(a, b), product(b, b)];
    const tilt = Math.atan2(2 * q, p - r) / 2, unit = bowl.x(1) - bowl.x(0);
    const levels = [0.3, 1, 2, 3].map((far) => far * Math.sqrt(state.stage === "stored" ? steep * 0.02 : flat));
    bowl.inside.selectAll("ellipse").data(levels).join("ellipse").attr("fill", "none").attr("stroke", QUIET)
      .attr("rx", (size) => (size / Math.sqrt(steep)) * unit).attr("ry", (size) => (size / Math.sqrt(flat)) * unit)
      .attr("transform", `translate(${bowl.x(0)},${bowl.y(0)}) rotate(${-tilt * 180 / Math.PI})`);
    bowl.inside.append("path").attr("d", d3.line(([u]) => bowl.x(u), ([, v]) => bowl.y(v))(path))
      .attr("fill", "none").attr("stroke", PATH).attr("stroke-width", 0.7);
    bowl.inside.selectAll("circle").data(path).join("circle").attr("r", 3.5).attr("fill", PATH)
      .attr("stroke", "#fff").attr("stroke-width", 0.8)
      .attr("cx", ([u]) => bowl.x(u)).attr("cy", ([, v]) => bowl.y(v));
  }

  /* A fault is named once it is repaired; the correlation is one if it is not zero. */
  const WHY = {
    stored: (correlated) => `There are ${correlated ? "three" : "two"} faults.`,
    meters: (correlated) => `Repaired: the unit. ${correlated ? "Two faults are" : "One fault is"} left.`,
    standardized: (correlated) => `Repaired: the unit and both means. ${correlated ? "One fault is left." : "Now raise the correlation."}`,
    rotated: (correlated) => (correlated ? "The columns no longer correlate. But a rotation does not change the shape of the bowl."
      : "A rotation does not change the shape of the bowl. Now raise the correlation."),
    whitened: (correlated) => (correlated ? "Repaired: the unit, both means and the correlation."
      : "Nothing was left to repair. Now raise the correlation."),
  };

  touch.figure("mot-whitening", {
    caption: "Left: samples, a dot each. Right: the loss of a linear model that learns from them; rings of equal loss, and "
      + "30 steps of gradient descent at the largest safe rate. Prepare the columns; then let them correlate.",
    controls: {
      stage: { label: "Columns", value: "stored", options: { stored: "meters, decimeters", meters: "both in meters",
        standardized: "standardized", rotated: "rotated", whitened: "rotated and divided (white)" } },
      correlation: { label: "Correlation", value: 0, min: 0, max: 0.9, step: 0.1, show: (v) => v.toFixed(1) },
    },
    compute,
    height: (width) => findSide(width) + 60,
    draw,
    tell: ({ steps }, { stage, correlation }) => `Condition number {condition:0}: {steps:0} step${steps === 1 ? "" : "s"} `
      + `until a millionth of the excess loss is left. ${WHY[stage](correlation > 0)}`,
  });
})();
