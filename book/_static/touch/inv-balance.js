/* The balance: an invariant weight that each step turns, and how long it gets. */
(function () {
  "use strict";

  const DECAYS = [0, 0.002, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2];
  const STARTS = [0.1, 0.3, 1, 3, 10];
  const STEPS = [0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 600, 800];
  const DEGREES = 180 / Math.PI;
  const COLOR = "#111", STEP = "#a020f0", BALANCE = "#e08214", QUIET = "#767676", BEFORE = "#aaa";

  /* The lengths before and after each step, and the angle by which each turns. */
  function follow([start, decay], { rate, gradient, length: usual, steps }) {
    const kept = 1 - rate * DECAYS[decay];
    const lengths = [STARTS[start] * usual], angles = [];
    for (let k = 0; k < steps; k++) {
      const square = lengths[k] ** 2;
      angles.push(Math.atan2((rate * gradient) / square, kept) * DEGREES);
      lengths.push(Math.sqrt(kept ** 2 * square + (rate * gradient) ** 2 / square));
    }
    return { lengths, angles };
  }

  const findDots = ({ decay, scale }, { recorded }) =>
    recorded.find((each) => each.decay === decay && each.scale === scale);

  function compute(state, data) {
    const { rate, gradient, every } = data;
    const decay = DECAYS[state.decay], scale = STARTS[state.start], step = STEPS[state.step];
    const { lengths, angles } = follow([state.start, state.decay], data);
    const numbers = { decay, scale, step, lengths, angles, now: lengths[step], last: angles[Math.max(step - 1, 0)] };
    const dots = findDots(numbers, data), block = step / every, share = rate * decay;
    if (dots && step && Number.isInteger(block)) Object.assign(numbers, { seen: dots.lengths[block], turned: dots.turns[block - 1] });
    if (decay === 0) return numbers;
    return {
      ...numbers,
      length: Math.sqrt(rate * gradient) / (share * (2 - share)) ** 0.25,
      angle: Math.atan(Math.sqrt(share * (2 - share)) / (1 - share)) * DEGREES,
    };
  }

  /* The run that is shown and the two before it, the newest first; what a slider passes is none. */
  function remember(state, data, moving) {
    const run = [state.start, state.decay];
    const runs = [run, ...state.runs.filter((each) => `${each}` !== `${run}`)].slice(0, 3);
    if (!moving) state.runs = runs;
    return runs.map((each) => follow(each, data));
  }

  /* The weight in one plane, to scale: its tips after all steps so far, and the triangle of the last. */
  function drawTurns(svg, runs, { length = 0, decay, step }, { x0, y0, radius }, rate, write) {
    const longest = Math.max(length, ...runs[0].lengths), unit = radius / longest;
    const at = (size, degrees) => [x0 + size * unit * Math.cos(degrees / DEGREES), y0 - size * unit * Math.sin(degrees / DEGREES)];
    const trace = ({ lengths, angles }) => {
      let direction = 0;
      return lengths.slice(0, step + 1).map((size, k) => [size, k ? (direction += angles[k - 1]) : 0]);
    };
    const dot = (run, color, thick) => svg.append("path").attr("stroke", color).attr("stroke-width", thick).attr("stroke-linecap", "round")
      .attr("d", trace(run).filter(([size]) => size <= longest).map(([size, direction]) => `M${at(size, direction)}h.01`).join(""));
    const arrow = ([x1, y1], [x2, y2], color, thick) => {
      const far = Math.max(1, Math.hypot(x2 - x1, y2 - y1)), head = Math.min(9, far);
      const [dx, dy] = [(x2 - x1) / far * head, (y2 - y1) / far * head];
      svg.append("path").attr("fill", "none").attr("stroke", color).attr("stroke-width", thick)
        .attr("d", `M${x1},${y1}L${x2},${y2}M${x2 - dx + dy / 2},${y2 - dy - dx / 2}L${x2},${y2}`
          + `L${x2 - dx - dy / 2},${y2 - dy + dx / 2}`);
    };
    runs.slice(1).forEach((run) => dot(run, BEFORE, 3));
    dot(runs[0], COLOR, 4);
    if (length) {
      svg.append("circle").attr("cx", x0).attr("cy", y0).attr("r", length * unit).attr("fill", "none")
        .attr("stroke", BALANCE).attr("stroke-width", 4);
      write(svg.append("text").attr("x", x0).attr("y", y0 + length * unit + 17).attr("text-anchor", "middle"), "{length:2}");
    }
    const tips = trace(runs[0]), before = tips[step - 1];
    if (step) {
      arrow([x0, y0], at(...before), QUIET, 1.5);
      arrow(at((1 - rate * decay) * before[0], before[1]), at(...tips[step]), STEP, 3);
    }
    arrow([x0, y0], at(...tips[step]), COLOR, 3);
  }

  const ZERO = 0.4; // where the axis of steps shows step 0
  const PANELS = [
    { title: "length", key: "lengths", balance: "length", domain: [0.5, 60], ticks: [0.5, 1, 2, 5, 10, 20, 50], first: 0 },
    { title: "angle of a step, °", key: "angles", balance: "angle", domain: [0.05, 100], ticks: [0.1, 1, 10, 100], first: 1 },
  ];

  function draw(svg, numbers, { state, data, width, moving, write }) {
    svg.selectAll("*").remove();
    const beside = width > 560, { step } = numbers, { every } = data;
    const runs = remember(state, data, moving);
    drawTurns(svg, runs, numbers, beside ? { x0: 118, y0: 122, radius: 110 } : { x0: width / 2, y0: 100, radius: 94 }, data.rate, write);
    const size = { width: (beside ? (width - 250) / 2 : width / 2) - 48, height: beside ? 170 : 90 };
    const dots = findDots(numbers, data);
    PANELS.forEach(({ title, key, balance, domain, ticks, first }, i) => {
      const x = d3.scaleLog([ZERO, data.steps], [0, size.width - 6]);
      const y = d3.scaleLog(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: (beside ? 292 : 38) + i * (size.width + 50), top: beside ? 28 : 246,
        x, y, title, xTicks: [ZERO, 1, 10, 100, 800], xNames: (k) => (k < 1 ? 0 : k), yTicks: ticks, xLabel: "step",
      });
      const across = (k) => x(Math.max(k, ZERO));
      place.append("path").attr("d", `M${across(step)},0V${size.height}`).attr("stroke", STEP).attr("opacity", 0.4);
      const stroke = (d, color, thick) => place.append("path").attr("d", d).attr("fill", "none").attr("stroke", color)
        .attr("stroke-width", thick).attr("stroke-linecap", "round");
      const path = d3.line((each, j) => across(j + first), y);
      const now = path(runs[0][key].slice(0, step + 1 - first)), last = runs.slice(1).map((run) => path(run[key]));
      last.forEach((d) => stroke(d, BEFORE, 1.5));
      if (numbers[balance]) stroke(`M0,${y(numbers[balance])}H${size.width}`, BALANCE, 6);
      stroke(now, COLOR, 2.5);
      if (!dots) return;
      const seen = key === "lengths" ? dots.lengths.map((length, k) => [k * every, length]) : dots.turns.map((turn, k) => [(k + 0.5) * every, turn]);
      const until = seen.filter(([k]) => k + (first * every) / 2 <= step);
      if (first) stroke(until.map(([k, turn]) => `M${x(k - every / 2 + 1)},${y(turn)}H${x(k + every / 2)}`).join(""), COLOR, 1);
      place.selectAll("circle").data(until).join("circle").attr("cx", ([k]) => across(k))
        .attr("cy", ([, value]) => y(value)).attr("r", 3).attr("fill", "#fff").attr("stroke", COLOR);
    });
  }

  function tell({ step, decay, seen }) {
    const computed = step ? "After step {step:0}, computed: {now:2} long, turned by {last:2}°"
      : "Before the first step, the weight is {now:2} long. The first will turn it by {last:2}°";
    const measured = seen ? `; measured: {seen:2}, {turned:2}°${decay ? "" : ", as the gradient fades"}` : "";
    return `${computed}${measured}. ${decay ? "Balance: {length:2}, {angle:2}°." : "No balance."}`;
  }

  const shown = (values) => (i) => String(values[i]);
  touch.figure("inv-balance", {
    caption: "Each step turns the weight (black; gray: before the last step; purple: that step) and changes its length. Dots: its tips so far, drawn "
      + "in one plane. Orange: the balance. Thin gray: your last two runs, whole. Lines: computed, as if the gradient at length 1 kept its size, that of the end of the runs with decay. "
      + "Circles: measured, at starts 0.3, 1 and 3 and decays 0 and 0.02 only; angles are root mean squares over 50 steps.",
    controls: {
      step: { label: "Steps", value: STEPS.indexOf(7), min: 0, max: STEPS.length - 1, step: 1, show: shown(STEPS) },
      start: {
        label: "Start × usual", value: 1, min: 0, max: 4, step: 1,
        show: (i, { length }) => `${STARTS[i]} × ${length.toFixed(1)}`,
      },
      decay: {
        label: "Weight decay", value: 4, min: 0, max: 7, step: 1,
        show: (i, { rate }) => `${DECAYS[i]}, ρ ${Number((rate * DECAYS[i]).toPrecision(3))}`,
      },
      runs: { drawn: true, value: () => [] },
    },
    compute,
    height: (width) => (width > 560 ? 255 : 378),
    draw,
    tell,
  });
})();
