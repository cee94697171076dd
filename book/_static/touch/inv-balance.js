/* The balance: an invariant weight that each step turns, and how long it gets. */
(function () {
  "use strict";

  const DECAYS = [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];
  const STARTS = [0.1, 0.3, 1, 3, 10];
  const STEPS = [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 400, 800];
  const DEGREES = 180 / Math.PI;
  const COLOR = "#332288", STEP = "#a020f0", BALANCE = "#e08214", QUIET = "#767676";

  function compute(state, { rate, gradient, length: usual, steps }) {
    const decay = DECAYS[state.decay], scale = STARTS[state.start], step = STEPS[state.step];
    const kept = 1 - rate * decay;
    const lengths = [scale * usual], angles = [];
    for (let k = 0; k < steps; k++) {
      const square = lengths[k] ** 2;
      angles.push(Math.atan2((rate * gradient) / square, kept) * DEGREES);
      lengths.push(Math.sqrt(kept ** 2 * square + (rate * gradient) ** 2 / square));
    }
    const numbers = { decay, scale, step, lengths, angles, now: lengths[step], last: angles[Math.max(step - 1, 0)] };
    if (decay === 0) return numbers;
    const share = rate * decay;
    return {
      ...numbers,
      length: Math.sqrt(rate * gradient) / (share * (2 - share)) ** 0.25,
      angle: Math.atan(Math.sqrt(share * (2 - share)) / (1 - share)) * DEGREES,
    };
  }

  /* The weight in one plane, to scale: its tips after all steps so far, and the triangle of the last. */
  function drawTurns(svg, { lengths, angles, step, length = 0, decay }, { x0, y0, radius }, rate) {
    const unit = radius / Math.max(length, ...lengths.slice(0, step + 1));
    const directions = [0];
    angles.slice(0, step).forEach((angle) => directions.push(directions.at(-1) + angle));
    const at = (size, degrees) => [x0 + size * unit * Math.cos(degrees / DEGREES), y0 - size * unit * Math.sin(degrees / DEGREES)];
    const tips = directions.map((degrees, k) => at(lengths[k], degrees));
    const arrow = ([x1, y1], [x2, y2], color, thick) => {
      const far = Math.max(1, Math.hypot(x2 - x1, y2 - y1)), head = Math.min(9, far);
      const [dx, dy] = [(x2 - x1) / far * head, (y2 - y1) / far * head];
      svg.append("path").attr("fill", "none").attr("stroke", color).attr("stroke-width", thick)
        .attr("d", `M${x1},${y1}L${x2},${y2}M${x2 - dx + dy / 2},${y2 - dy - dx / 2}L${x2},${y2}`
          + `L${x2 - dx - dy / 2},${y2 - dy + dx / 2}`);
    };
    svg.append("g").selectAll("circle").data(tips).join("circle").attr("r", 2).attr("fill", COLOR)
      .attr("cx", ([x]) => x).attr("cy", ([, y]) => y).attr("opacity", 0.5);
    if (length) {
      svg.append("circle").attr("cx", x0).attr("cy", y0).attr("r", length * unit).attr("fill", "none")
        .attr("stroke", BALANCE).attr("stroke-width", 6);
    }
    if (step) {
      arrow([x0, y0], tips[step - 1], QUIET, 1.5);
      arrow(at((1 - rate * decay) * lengths[step - 1], directions[step - 1]), tips[step], STEP, 2);
    }
    arrow([x0, y0], tips[step], COLOR, 3);
  }

  const PANELS = [
    { title: "length", key: "lengths", balance: "length", domain: [1, 20], ticks: [0.5, 1, 2, 5, 10, 20, 50] },
    { title: "angle of a step, °", key: "angles", balance: "angle", domain: [0.01, 100], ticks: [0.01, 0.1, 1, 10, 100] },
  ];

  /* Root mean squares over blocks of steps, as the recorded dots are; the last block may be short. */
  function average(angles, every) {
    return touch.range(Math.ceil(angles.length / every)).map((block) => {
      const squares = angles.slice(block * every, (block + 1) * every).map((angle) => angle ** 2);
      return [block * every + squares.length / 2, Math.sqrt(touch.mean(squares))];
    });
  }

  /* An axis that holds the whole run, so that it stays while the steps move on. */
  const stretch = ([low, high], values) => [Math.min(low, 0.8 * Math.min(...values)), Math.max(high, 1.25 * Math.max(...values))];

  const findDots = ({ decay, scale }, { recorded }) =>
    recorded.filter((each) => each.decay === decay && each.scale === scale);

  function draw(svg, numbers, { data, width }) {
    svg.selectAll("*").remove();
    const beside = width > 560;
    drawTurns(svg, numbers, beside ? { x0: 118, y0: 122, radius: 110 } : { x0: width / 2, y0: 100, radius: 94 }, data.rate);
    const size = { width: (beside ? (width - 250) / 2 : width / 2) - 48, height: beside ? 170 : 90 };
    const dots = findDots(numbers, data), { step } = numbers;
    PANELS.forEach(({ title, key, balance, domain: usual, ticks }, i) => {
      const domain = key === "angles" ? usual : stretch(usual, numbers.lengths);
      const x = d3.scaleLinear([-0.04 * data.steps, data.steps], [0, size.width]);
      const y = d3.scaleLog(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: (beside ? 292 : 38) + i * (size.width + 50), top: beside ? 28 : 228,
        x, y, title, xTicks: [0, 400, 800], yTicks: ticks.filter((tick) => tick >= domain[0] && tick <= domain[1]), xLabel: "step",
      });
      const level = (at, color, thick) => place.append("line").attr("x2", size.width).attr("stroke", color)
        .attr("stroke-width", thick).attr("y1", y(at)).attr("y2", y(at));
      place.append("line").attr("x1", x(step)).attr("x2", x(step)).attr("y2", size.height)
        .attr("stroke", STEP).attr("opacity", 0.4);
      if (numbers[balance]) level(numbers[balance], BALANCE, 6);
      const points = key === "angles" ? average(numbers[key].slice(0, step), data.every)
        : numbers[key].slice(0, step + 1).map((value, k) => [k, value]);
      place.append("path").attr("d", d3.line(([k]) => x(k), ([, value]) => y(value))(points)).attr("fill", "none")
        .attr("stroke", COLOR).attr("stroke-width", 2.5).attr("stroke-linecap", "round");
      const seen = dots.flatMap(({ lengths, turns }) => (key === "angles"
        ? turns.map((turn, k) => [k + 0.5, turn]) : lengths.map((length, k) => [k, length])))
        .filter(([k]) => k * data.every <= step);
      place.selectAll("circle").data(seen).join("circle").attr("cx", ([k]) => x(k * data.every))
        .attr("cy", ([, value]) => y(value)).attr("r", 3).attr("fill", "#fff").attr("stroke", COLOR);
    });
  }

  function tell({ step, decay }) {
    const now = step ? `In the computed run, step {step:0} turned the weight by {last:2} degrees; it is {now:2} long. `
      : "Before the first step, the weight is {now:2} long. The first will turn it by {last:2} degrees. ";
    return now + (decay ? "At the balance it is {length:2} long, and each step turns it by {angle:2} degrees."
      : "Without decay there is no balance: it keeps growing.");
  }

  const shown = (values) => (i) => String(values[i]);
  touch.figure("inv-balance", {
    caption: "Each step turns the weight, and changes its length. Orange: the balance. Purple: the last step. All turns are drawn "
      + "in one plane. Lines: computed, as if the gradient changed with the length alone. Circles: measured, at starts 0.3, 1 and 3 and decays 0 and 0.02 only.",
    controls: {
      step: { label: "Steps", value: 1, min: 0, max: STEPS.length - 1, step: 1, show: shown(STEPS) },
      start: { label: "Start: usual length ×", value: 1, min: 0, max: 4, step: 1, show: shown(STARTS) },
      decay: { label: "Weight decay", value: 4, min: 0, max: 7, step: 1, show: shown(DECAYS) },
    },
    compute,
    height: (width) => (width > 560 ? 245 : 360),
    draw,
    tell,
  });
})();
