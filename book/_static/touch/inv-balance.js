/* The balance: how long an invariant weight is, and how far each step turns it. */
(function () {
  "use strict";

  const RATES = [0.05, 0.1, 0.2, 0.5, 1, 2];
  const DECAYS = [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];
  const STARTS = [0.1, 0.3, 1, 3, 10];
  const DEGREES = 180 / Math.PI;
  const COLOR = "#5d2e00", BALANCE = "#e08214", USUAL = "#767676";

  function follow(length, rate, decay, { gradient, steps }) {
    const kept = 1 - rate * decay;
    const lengths = [length], angles = [];
    for (let step = 0; step < steps; step++) {
      const square = lengths[step] ** 2;
      angles.push(Math.atan2((rate * gradient) / square, kept) * DEGREES);
      lengths.push(Math.sqrt(kept ** 2 * square + (rate * gradient) ** 2 / square));
    }
    return { lengths, angles, rates: lengths.map((each) => rate / each ** 2) };
  }

  function compute(state, data) {
    const rate = RATES[state.rate], decay = DECAYS[state.decay], scale = STARTS[state.start];
    const drawn = follow(scale * data.length, rate, decay, data);
    const usual = follow(data.length, rate, decay, data);
    const numbers = {
      rate, decay, scale, ...drawn,
      usualLengths: usual.lengths, usualAngles: usual.angles, usualRates: usual.rates,
      firstAngle: drawn.angles[0], endLength: drawn.lengths.at(-1), endAngle: drawn.angles.at(-1),
      endRate: drawn.rates.at(-1),
    };
    if (decay === 0) return numbers;
    const share = rate * decay;
    const length = Math.sqrt(rate * data.gradient) / (share * (2 - share)) ** 0.25;
    const angle = Math.atan(Math.sqrt(share * (2 - share)) / (1 - share)) * DEGREES;
    const far = drawn.lengths.findLastIndex((each) => Math.abs(each / length - 1) > 0.1);
    return { ...numbers, length, angle, effective: rate / length ** 2, arrived: far + 1 };
  }

  const PANELS = [
    { title: "length of the weight", drawn: "lengths", usual: "usualLengths", balance: "length",
      domain: [0.3, 100], ticks: [1, 10, 100] },
    { title: "angle of a step, degrees", drawn: "angles", usual: "usualAngles", balance: "angle",
      domain: [0.01, 100], ticks: [0.01, 0.1, 1, 10, 100] },
    { title: "effective rate", drawn: "rates", usual: "usualRates", balance: "effective",
      domain: [0.0001, 1], ticks: [0.0001, 0.01, 1] },
  ];

  /* Root mean squares over blocks of steps, as the recorded dots are. */
  function average(angles, every) {
    const points = [];
    for (let first = 0; first < angles.length; first += every) {
      const squares = angles.slice(first, first + every).map((angle) => angle ** 2);
      const sum = squares.reduce((total, square) => total + square, 0);
      points.push([first + every / 2, Math.sqrt(sum / squares.length)]);
    }
    return points;
  }

  function draw(svg, numbers, { data, width }) {
    svg.selectAll("*").remove();
    const beside = width > 560;
    const size = { width: beside ? width / 3 - 52 : width - 60, height: 150 };
    const dots = data.recorded.filter(({ rate, decay, scale }) =>
      rate === numbers.rate && decay === numbers.decay && scale === numbers.scale);
    PANELS.forEach(({ title, drawn, usual, balance, domain, ticks }, i) => {
      const x = d3.scaleLinear([0, data.steps], [0, size.width]);
      const y = d3.scaleLog(domain, [size.height, 0]);
      const place = touch.panel(svg, {
        ...size, left: beside ? (i * width) / 3 + 42 : 50, top: beside ? 24 : 24 + i * 210,
        x, y, title, xTicks: [0, 400, 800], yTicks: ticks, xLabel: "step",
      });
      const line = d3.line(([step]) => x(step), ([, value]) => y(value));
      const points = (name) => (drawn === "angles" ? average(numbers[name], data.every)
        : numbers[name].map((value, step) => [step, value]));
      if (numbers[balance]) {
        place.append("line").attr("x2", size.width).attr("stroke", BALANCE).attr("stroke-width", 7)
          .attr("y1", y(numbers[balance])).attr("y2", y(numbers[balance]));
      }
      place.append("path").attr("d", line(points(usual))).attr("fill", "none")
        .attr("stroke", USUAL).attr("stroke-width", 2).attr("stroke-dasharray", "5 3");
      place.append("path").attr("d", line(points(drawn))).attr("fill", "none")
        .attr("stroke", COLOR).attr("stroke-width", 2.5);
      const seen = dots.flatMap(({ lengths, turns }) => (drawn === "angles"
        ? turns.map((turn, k) => [k + 0.5, turn])
        : lengths.map((length, k) => [k, drawn === "lengths" ? length : numbers.rate / length ** 2])));
      place.selectAll("circle").data(seen).join("circle")
        .attr("cx", ([k]) => x(k * data.every)).attr("cy", ([, value]) => y(value))
        .attr("r", 3).attr("fill", "#fff").attr("stroke", COLOR);
    });
  }

  function tell(numbers, _, { steps }) {
    const first = "The first step turns the weight by {firstAngle:2} degrees. ";
    const end = `After ${steps} steps it is {endLength:2} long, a step turns it by {endAngle:2} degrees, `
      + "and the effective rate is {endRate:5}.";
    const dashed = (numbers.scale === 1 ? "" : " Dashed: the usual start.")
      + " Lines: computed, as if the gradient changed with the length alone. Dots: measured.";
    if (numbers.decay === 0) return `${first}Without decay there is no balance. ${end}${dashed}`;
    return `${first}The balance (broad line) is at a length of {length:2}, {angle:2} degrees a step and an `
      + `effective rate of {effective:5}; ${numbers.arrived > steps ? `it is not yet reached. ${end}`
        : "the length is within a tenth of it from step {arrived:0} on."}${dashed}`;
  }

  const shown = (values) => (i) => String(values[i]);
  touch.figure("inv-balance", {
    controls: {
      rate: { label: "Rate", value: 3, min: 0, max: 5, step: 1, show: shown(RATES) },
      decay: { label: "Weight decay", value: 4, min: 0, max: 7, step: 1, show: shown(DECAYS) },
      start: { label: "Start, times the usual length", value: 3, min: 0, max: 4, step: 1,
        show: shown(STARTS) },
    },
    compute,
    height: (width) => (width > 560 ? 220 : 630),
    draw,
    tell,
  });
})();
