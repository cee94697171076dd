/* The triangle: one step of SGD on an invariant matrix, to scale. */
(function () {
  "use strict";

  const RATES = [0.05, 0.125, 0.25, 0.5, 1, 2, 4, 8, 20, 50, 100];
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
    const [y0, wide, high] = [128, width - 118, 100];
    const unit = Math.min(wide / numbers.old, high / numbers.step);
    const leg = numbers.old * unit, turn = numbers.angle / DEGREES;
    const steep = leg < 150, x0 = steep ? 90 : 8;
    const usual = take(data.length, 0.5, data.gradient);
    const same = (unit * numbers.old) / usual.old;
    drawTriangle(svg, usual, { x0, y0, unit: Math.min(same, high / usual.step) }, [QUIET, QUIET, QUIET], 1);
    const [x1, y1] = drawTriangle(svg, numbers, { x0, y0, unit }, [OLD, STEP, NEW], 2.5);
    const say = (x, y, anchor, color, sentence) => write(svg.append("text").attr("x", x).attr("y", y)
      .attr("text-anchor", anchor).style("fill", color), sentence);
    // Each name stands beside its line; that of the angle stands below where the arc leaves it no room.
    const flat = 0.52 * leg * Math.tan(turn) < 24 && !steep;
    const radius = steep ? Math.min(0.5 * leg, 30) : (flat ? 0.35 : 0.52) * leg;
    say(flat ? x0 + 0.8 * leg : (x0 + x1) / 2, y0 + 20, "middle", OLD, "old {old:3}");
    say(x1 + 12, (y0 + y1) / 2 + 5, "start", STEP, "step {step:3}");
    const middle = [(x0 + x1) / 2, (y0 + y1) / 2];
    if (steep) {
      say(middle[0] - 10, middle[1] - 8, "end", NEW, "new {new:3}");
      say(x0 - 8, y0 + 5, "end", OLD, "{angle:2}°");
    } else {
      svg.append("g").attr("transform", `translate(${middle}) rotate(${-numbers.angle})`).call((place) => write(
        place.append("text").attr("y", -8).attr("text-anchor", "middle").style("fill", NEW), "new {new:3}"));
      if (flat) say(x0 + radius, y0 + 20, "middle", OLD, "angle {angle:2}°");
      else say(x0 + radius + 7, y0 - (radius * Math.tan(turn)) / 2 + 5, "start", OLD, "{angle:2}°");
    }
    const corner = Math.min(11, 0.4 * leg, 0.4 * (y0 - y1));
    svg.append("path").attr("fill", "none").attr("stroke", QUIET)
      .attr("d", `M${x1 - corner},${y0}v${-corner}h${corner}`);
    svg.append("path").attr("fill", "none").attr("stroke", QUIET)
      .attr("d", `M${x0 + radius},${y0}A${radius},${radius} 0 0 0 `
        + `${x0 + radius * Math.cos(turn)},${y0 - radius * Math.sin(turn)}`);
  }

  function tell({ rate, scale, angle, growth }, _, data) {
    const usual = take(data.length, 0.5, data.gradient).angle;
    const digits = Math.max(0, 1 - Math.floor(Math.log10(growth))); // two that count
    const now = `The step turns the matrix by {angle:2} degrees and makes it {growth:${digits}} percent longer. `;
    if (Math.abs(angle / usual - 1) > 1e-6) {
      const far = angle > 45 ? "That is too much. " : angle < 1 ? "That is too little. " : "";
      return `${now}${far}At which rate does it turn by ${usual.toFixed(2)} degrees, as the original does?`;
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
