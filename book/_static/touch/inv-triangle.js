/* The triangle: one step of SGD on an invariant matrix, to scale. */
(function () {
  "use strict";

  const RATES = [0.05, 0.125, 0.25, 0.5, 1, 2, 4, 8, 20, 50];
  const SCALES = [0.5, 1, 2, 4, 10];
  const DEGREES = 180 / Math.PI;
  const OLD = "#111", STEP = "#a020f0", NEW = "#332288", QUIET = "#767676";

  /* The gradient at a longer matrix is shorter, by the same factor. */
  function take(length, rate, gradient) {
    const step = (rate * gradient) / length, end = Math.hypot(length, step);
    return { old: length, step, new: end, growth: 100 * (end / length - 1), angle: Math.atan2(step, length) * DEGREES };
  }

  function drawTriangle(svg, { old, step }, { x0, y0, unit }, [first, second, third], thick) {
    const [x1, y1] = [x0 + old * unit, y0 - step * unit];
    const line = (tail, tip, color) => {
      const far = Math.max(1, Math.hypot(tip[0] - tail[0], tip[1] - tail[1]));
      const head = thick > 1 ? Math.min(11, far) : 0;
      const [dx, dy] = [(tip[0] - tail[0]) / far * head, (tip[1] - tail[1]) / far * head];
      svg.append("path").attr("fill", "none").attr("stroke", color).attr("stroke-width", thick)
        .attr("d", `M${tail}L${tip}M${tip[0] - dx + dy / 2},${tip[1] - dy - dx / 2}L${tip}`
          + `L${tip[0] - dx - dy / 2},${tip[1] - dy + dx / 2}`);
    };
    line([x0, y0], [x1, y0], first);
    line([x1, y0], [x1, y1], second);
    line([x0, y0], [x1, y1], third);
    return [x1, y1];
  }

  function draw(svg, numbers, { state, data, width, write }) {
    svg.selectAll("*").remove();
    const [x0, y0, wide, high] = [8, 128, width - 118, 100];
    const unit = Math.min(wide / numbers.old, high / numbers.step);
    const usual = take(data.length, 0.5, data.gradient);
    const same = (unit * numbers.old) / usual.old;
    drawTriangle(svg, usual, { x0, y0, unit: Math.min(same, high / usual.step) }, [QUIET, QUIET, QUIET], 1);
    const [x1, y1] = drawTriangle(svg, numbers, { x0, y0, unit }, [OLD, STEP, NEW], 2.5);
    const say = (x, y, anchor, color, sentence) => write(svg.append("text").attr("x", x).attr("y", y)
      .attr("text-anchor", anchor).style("fill", color), sentence);
    say((x0 + x1) / 2, y0 + 20, x1 - x0 > 90 ? "middle" : "start", OLD, "old {old:3}");
    say(x1 + 12, (y0 + y1) / 2 + 5, "start", STEP, "step {step:3}");
    const thin = x1 - x0 > 2 * (y0 - y1);
    say(thin ? x0 : x1 + 12, thin ? 40 : 16, "start", NEW, "new {new:3}");
    say(width - 8, 40, "end", OLD, "angle {angle:2}°");
    const radius = Math.min(0.5 * (x1 - x0), 150), turn = numbers.angle / DEGREES;
    svg.append("path").attr("fill", "none").attr("stroke", OLD)
      .attr("d", `M${x0 + radius},${y0}A${radius},${radius} 0 0 0 `
        + `${x0 + radius * Math.cos(turn)},${y0 - radius * Math.sin(turn)}`);
  }

  function tell({ rate, scale, angle }, _, data) {
    const usual = take(data.length, 0.5, data.gradient).angle;
    const now = "The step turns the matrix by {angle:2} degrees and makes it {growth:2} percent longer. ";
    if (Math.abs(angle / usual - 1) > 1e-6) {
      return `${now}At which rate does it turn by ${usual.toFixed(2)} degrees, as the original does?`;
    }
    return now + (scale === 1 ? "This is the original. Now make it ten times as long, and find the rate that turns it as far."
      : `It is the original's triangle, ${scale} times as large, at ${(rate / 0.5).toLocaleString("en-US")} times the rate.`);
  }

  const shown = (values) => (i) => String(values[i]);
  touch.figure("inv-triangle", {
    caption: "One step of SGD on the first hidden matrix, in its true shape. Change the matrix's length and the rate. "
      + "Gray: the original's step, drawn as long.",
    controls: {
      length: { label: "Length, ×", value: 1, min: 0, max: SCALES.length - 1, step: 1, show: shown(SCALES) },
      rate: { label: "Rate", value: 3, min: 0, max: RATES.length - 1, step: 1, show: shown(RATES) },
    },
    compute(state, { length, gradient }) {
      const [rate, scale] = [RATES[state.rate], SCALES[state.length]];
      return { rate, scale, ...take(scale * length, rate, gradient) };
    },
    height: () => 158,
    draw,
    tell,
  });
})();
