/* What the gradient of layer norm may not contain: three features, so that x_hat lies on a circle
   in the plane of sum zero. A vector of this plane is given by its length and its angle. */
touch.figure("ln-gradient", {
  caption: "A token of three features with σ = 1. Turn x̂ and dy by their tips. Left: the plane of sum zero, in which dy is drawn "
    + "without its mean. Dashed: what dx lacks.",
  ask: "Make dx vanish while dy does not. There are two ways.",
  controls: {
    mean: { label: "Mean of dy", min: -0.8, max: 0.8, step: 0.1, value: 0.6, show: (v) => v.toFixed(1).replace("-", "−") },
    rest: { label: "dy − its mean", min: 0, max: 1.4, step: 0.2, value: 1.4, show: (v) => v.toFixed(1) },
    dy: { drawn: true, around: true, min: -180, max: 180, step: 5, value: 75 },
    token: { drawn: true, around: true, min: -180, max: 180, step: 5, value: 20 },
  },

  compute({ mean, rest, dy: angle, token }) {
    // The axes of the features stand 120 degrees apart in the plane; the first one points up.
    const features = (size, degrees) => [90, 210, 330].map(
      (axis) => size * Math.sqrt(2 / 3) * Math.cos((degrees - axis) * Math.PI / 180));
    const average = touch.mean;
    const xHat = features(Math.sqrt(3), token);
    const dy = features(rest, angle).map((v) => v + mean);
    const centered = dy.map((v) => v - average(dy));
    const along = average(dy.map((v, i) => v * xHat[i]));
    const dx = centered.map((v, i) => v - along * xHat[i]);
    return {
      xHat, dy, centered, dx, along,
      mean: average(dy),
      leftMean: average(dx),
      leftAlong: average(dx.map((v, i) => v * xHat[i])),
      size: Math.hypot(...dx),
      given: Math.hypot(...dy),
    };
  },

  height: (width) => (width < 560 ? 215 : 290),

  draw(svg, { along, mean, size }, { state, data, width, below, part, write, handle }) {
    const [x0, y0, unit] = width < 560 ? [128, 112, 42] : [190, 150, 60];
    const radius = Math.sqrt(3) * unit;
    const turn = (degrees) => [Math.cos(degrees * Math.PI / 180), -Math.sin(degrees * Math.PI / 180)];
    const at = (size, degrees) => turn(degrees).map((v, i) => [x0, y0][i] + size * v * unit);
    const put = (name, [x1, y1], [x2, y2], color, thick = 2, dashes = null) => {
      const [dx, dy] = [x2 - x1, y2 - y1].map((v) => v / Math.max(1, Math.hypot(x2 - x1, y2 - y1)));
      const tip = dashes ? "" : `M${x2 - 10 * dx + 5 * dy},${y2 - 10 * dy - 5 * dx}L${x2},${y2}`
        + `L${x2 - 10 * dx - 5 * dy},${y2 - 10 * dy + 5 * dx}`;
      part(svg, `path.${name}`).attr("d", `M${x1},${y1}L${x2},${y2}${tip}`).attr("fill", "none")
        .attr("stroke", color).attr("stroke-width", thick).attr("stroke-dasharray", dashes);
    };
    const label = (name, [x, y], said, anchor = "middle") => part(svg, `text.${name}`)
      .attr("x", x).attr("y", y).attr("text-anchor", anchor).text(said);
    const quiet = "var(--pst-color-text-muted)";
    const rest = "var(--pst-color-primary)";

    part(svg, "circle.circle").attr("cx", x0).attr("cy", y0).attr("r", radius)
      .attr("fill", "none").attr("stroke", quiet);
    [90, 210, 330].forEach((axis, i) => {
      put(`axis${i}`, [x0, y0], at(1.62, axis), quiet, 1, "2 4");
      label(`feature${i}`, at(1.95, axis).map((v, k) => v + 5 * k), `feature ${i + 1}`, ["middle", "end", "start"][i]);
    });
    const [tipToken, tipDy] = [at(Math.sqrt(3), state.token), at(state.rest, state.dy)];
    const removed = turn(state.token).map((v) => along * Math.sqrt(3) * v * unit);
    const tipDx = tipDy.map((v, i) => v - removed[i]);
    put("xhat", [x0, y0], tipToken, data.color);
    put("along", tipDy, tipDx, data.color, 2, "5 3");
    put("dy", [x0, y0], tipDy, "currentColor");
    put("dx", [x0, y0], tipDx, rest, 4);
    label("xhat-name", at(2.05, state.token).map((v, i) => v + 5 * i), "x̂");
    // beside its tip, where the dashed line does not go
    const side = Math.sin(2 * (state.token - state.dy) * Math.PI / 180) > 0 ? 90 : -90;
    const [out, up] = turn(state.dy + side);
    label("dy-name", [tipDy[0] + 15 * out, tipDy[1] + 19 * up + 4], "dy − mean", out > 0.3 ? "start" : out < -0.3 ? "end" : "middle");
    label("dx-name", tipDx.map((v, i) => v + 14 * Math.sign(v - [x0, y0][i]) + 4 * i), size > 0.005 ? "dx" : "")
      .attr("font-weight", "bold");
    const handles = [
      { key: "token", name: "Direction of x̂", tip: tipToken },
      { key: "dy", name: "Direction of dy", tip: tipDy }];
    svg.selectAll("circle.tip").data(handles).join("circle").attr("class", "tip").attr("r", 9)
      .attr("cx", (d) => d.tip[0]).attr("cy", (d) => d.tip[1])
      .attr("fill", (d) => (d.key === "token" ? data.color : "currentColor"))
      .call(handle, {
        label: (d) => d.name,
        said: (d) => `${state[d.key]} degrees`,
        // Next to the line of the other arrow, a finger gets that line, so that dx vanishes.
        where(x, y) {
          const degrees = Math.atan2(y0 - y, x - x0) * 180 / Math.PI;
          const off = (degrees - state[this.__data__.key === "dy" ? "token" : "dy"] + 450) % 180 - 90;
          return Math.abs(off) < 7.5 ? degrees - off : degrees;
        },
      });

    // The same dy beside the plane, which is seen from the side.
    const [sx, sy] = width < 560 ? [width - 106, 66] : [width - 190, 160];
    const wide = width < 560 ? 100 : 170;
    const foot = [sx + state.rest * unit, sy];
    const top = [foot[0], sy - mean * Math.sqrt(3) * unit];
    put("plane", [sx - (wide > 100 ? 16 : 4), sy], [sx + wide, sy], quiet, 1, "0");
    label("plane-name", [sx + wide, sy + (mean < 0 ? -8 : 16)], wide > 100 ? "the same plane, seen from the side" : "from the side", "end");
    put("side", [sx, sy], top, "currentColor");
    put("shadow", [sx, sy], foot, "currentColor", 3, "1 3");
    put("mean", top, foot, quiet, 2, "5 3");
    label("mean-name", [foot[0] + 8, (sy + top[1]) / 2 + 4], Math.abs(mean) < 0.05 ? "" : "mean", "start");

    const rows = [["x̂", "xHat"], ["dy", "dy"], ["− its mean", "centered"],
      ["− its part along x̂ = dx", "dx"]];
    const table = part(below, "table.touch-rows");
    part(table, "tr.touch-head").selectAll("th").data(["feature", "1", "2", "3"]).join("th")
      .attr("scope", (d, i) => (i ? "col" : null)).text((d) => d);
    const lines = table.selectAll("tr.touch-row").data(rows).join("tr").attr("class", "touch-row");
    lines.selectAll("th").data((d) => [d[0]]).join("th").attr("scope", "row").text((d) => d);
    write(lines.selectAll("td").data((d) => [0, 1, 2].map((i) => `{${d[1]}.${i}:2}`)).join("td"),
      (d) => d);
  },

  tell({ size, given }, { rest }) {
    if (given < 0.005) return "dy is zero, so dx is, too.";
    if (size > 0.005) {
      return "Taken away from dy: its mean, {mean:2}, and {along:2} x̂. dx is {size:2} long.";
    }
    return `dx has vanished, and dy is {given:2} long. ${rest
      ? "Up to its mean, dy lies along x̂: it asks for another size, and layer norm takes the size away."
      : "All entries of dy are equal: it asks for another mean, and layer norm takes the mean away."}`;
  },
});
