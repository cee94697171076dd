/* What the gradient of layer norm may not contain: three features, so that x_hat lies on a circle
   in the plane of sum zero. A vector of this plane is given by its length and its angle. */
touch.figure("ln-gradient", {
  caption: "A token of three features with σ = 1. Move the tips of x̂ and dy. In the circle, the plane of sum zero, dy is drawn "
    + "without its mean. Seen along x̂, it stands √3 times as high as its mean. Dashed: what dx lacks.",
  ask: ({ found }) => "Make dx vanish while dy does not. There are two ways. Found: "
    + `${found.map((way) => `${way} ✓`).join(", ") || "none yet"}.`,
  controls: {
    mean: { label: "Mean of dy", min: -0.8, max: 0.8, step: 0.1, value: 0.6, show: (v) => v.toFixed(1).replace("-", "−") },
    rest: { label: "Length of dy − mean", min: 0, max: 1.4, step: 0.1, value: 1, show: (v) => v.toFixed(1) },
    dy: { drawn: true, around: true, min: -180, max: 180, step: 5, value: 75 },
    token: { drawn: true, around: true, min: -180, max: 180, step: 5, value: 20 },
    found: { drawn: true, value: () => [] },
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
      lengths: [xHat, dy, centered, dx].map((vector) => Math.hypot(...vector)),
      gone: [mean, along].map((each) => Math.abs(each) * Math.sqrt(3)),
    };
  },

  height: (width) => (width < 560 ? 358 : 300),

  draw(svg, { along, mean, lengths }, { state, data, width, moving, below, part, write, handle }) {
    if (!moving && lengths[1] > 0.005 && lengths[3] < 0.005) state.found = [...new Set([...state.found, state.rest ? "size" : "mean"])];
    const small = width < 560;
    const [x0, y0, unit] = small ? [width / 2, 116, 44] : [210, 158, 60];
    const radius = Math.sqrt(3) * unit;
    const turn = (degrees) => [Math.cos(degrees * Math.PI / 180), -Math.sin(degrees * Math.PI / 180)];
    const at = (pixels, degrees) => turn(degrees).map((v, i) => [x0, y0][i] + pixels * v);
    const put = (name, [x1, y1], [x2, y2], color, thick = 2, dashes = null) => {
      const [dx, dy] = [x2 - x1, y2 - y1].map((v) => v / Math.max(1, Math.hypot(x2 - x1, y2 - y1)));
      const tip = dashes ? "" : `M${x2 - 10 * dx + 5 * dy},${y2 - 10 * dy - 5 * dx}L${x2},${y2}`
        + `L${x2 - 10 * dx - 5 * dy},${y2 - 10 * dy + 5 * dx}`;
      return part(svg, `path.${name}`).attr("d", `M${x1},${y1}L${x2},${y2}${tip}`).attr("fill", "none")
        .attr("stroke", color).attr("stroke-width", thick).attr("stroke-dasharray", dashes);
    };
    const label = (name, [x, y], said, anchor = "middle") => part(svg, `text.${name}`)
      .attr("x", x).attr("y", y).attr("text-anchor", anchor).text(said);
    const quiet = "var(--pst-color-text-muted)";
    const passing = "var(--pst-color-primary)";

    part(svg, "circle.circle").attr("cx", x0).attr("cy", y0).attr("r", radius)
      .attr("fill", "none").attr("stroke", quiet);
    [90, 210, 330].forEach((axis, i) => {
      put(`axis${i}`, [x0, y0], at(radius, axis), quiet, 1, "2 4");
      label(`feature${i}`, at(radius + (i ? small ? 50 : 60 : 30), axis).map((v, k) => v + (i ? 12 : 5) * k), `feature ${i + 1}`, ["middle", "end", "start"][i]);
    });
    const [tipToken, tipDy] = [at(radius, state.token), at(state.rest * unit, state.dy)];
    const removed = turn(state.token).map((v) => along * Math.sqrt(3) * v * unit);
    const tipDx = tipDy.map((v, i) => v - removed[i]);
    // What is left of dy, to the right of x̂ (positive) or to its left.
    const left = state.rest * Math.sin((state.token - state.dy) * Math.PI / 180);
    put("passing", at(radius + 10, state.token + 90), at(radius + 10, state.token - 90), passing, 6, "0").attr("opacity", 0.3);
    const free = (state.token + (left > 0 ? 90 : -90) + 360) % 360;
    const flip = free > 90 && free <= 270, end = radius + (small ? 14 : 0);
    part(svg, "text.passing-name").attr("text-anchor", flip ? "start" : "end").attr("x", flip ? -end : end).attr("y", -7)
      .attr("transform", `translate(${x0},${y0}) rotate(${(flip ? 180 : 0) - free})`).style("fill", passing).text("all that passes");
    put("xhat", [x0, y0], tipToken, data.color);
    put("along", tipDy, tipDx, data.color, 2, "5 3");
    put("dy", [x0, y0], tipDy, "currentColor");
    put("dx", [x0, y0], tipDx, passing, 4);
    label("xhat-name", at(radius + 17, state.token).map((v, i) => v + 5 * i), "x̂");
    // beside its tip, where neither the dashed line nor the tip of x̂ is
    const between = (state.token - state.dy) * Math.PI / 180;
    const side = (Math.sin(2 * between) > 0) === (Math.cos(between) < 0.6) ? 90 : -90;
    const [out, up] = turn(state.dy + side);
    const beside = Math.abs(out) > 0.3;
    label("dy-name", [tipDy[0] + 15 * out, tipDy[1] + (beside ? 10 * turn(state.dy)[1] : 19 * up) + 4], "dy − mean",
      beside ? (out > 0 ? "start" : "end") : "middle");
    const named = lengths[3] > 0.005 ? "dx" : "";
    const away = turn(state.token).map((v) => -Math.sign(along) * v); // from dy
    label("dx-name", tipDx.map((v, i) => (0.4 * [x0, y0][i] + 0.6 * v) + 14 * away[i] + 4 * i), named).attr("font-weight", "bold");
    const handles = [
      { key: "token", name: "Direction of x̂", tip: tipToken },
      { key: "dy", name: "Direction of dy − mean", tip: tipDy }];
    svg.selectAll("circle.tip").data(handles).join("circle").attr("class", "tip").attr("r", 9)
      .attr("cx", (d) => d.tip[0]).attr("cy", (d) => d.tip[1])
      .attr("fill", (d) => (d.key === "token" ? data.color : "currentColor"))
      .call(handle, {
        label: (d) => d.name,
        said: (d) => `${state[d.key]} degrees`,
        // Next to the line of the other arrow, a finger gets that line, so that dx vanishes.
        where(x, y) {
          const key = this.__data__.key, degrees = Math.atan2(y0 - y, x - x0) * 180 / Math.PI;
          const off = (degrees - state[key === "dy" ? "token" : "dy"] + 450) % 180 - 90;
          const angle = Math.abs(off) < 7.5 ? degrees - off : degrees;
          return key === "dy" ? { dy: angle, rest: Math.hypot(x - x0, y - y0) / unit } : angle;
        },
      });

    // The same dy above the plane, which is seen along x̂, so that of its part in the plane dx is left.
    const [sx, sy] = small ? [width - 112, 280] : [width - 138, 150];
    const ends = [-1.5, 1.5].map((v) => sx + v * unit);
    const foot = [sx + left * unit, sy], top = [foot[0], sy - mean * Math.sqrt(3) * unit];
    put("plane", [ends[0], sy], [ends[1], sy], passing, 6, "0").attr("opacity", 0.3);
    label("plane-name", small ? [8, sy + 4] : [sx, 270], "the same, seen along x̂", small ? "start" : "middle");
    put("mean", top, foot, quiet, 2, "5 3");
    put("side-dx", [sx, sy], foot, passing, 4);
    put("side", [sx, sy], top, "currentColor");
    svg.selectAll("circle.nothing").data([[x0, y0], [sx, sy]]).join("circle").attr("class", "nothing").attr("r", named ? 0 : 5).attr("pointer-events", "none")
      .attr("cx", ([x]) => x).attr("cy", ([, y]) => y).attr("fill", passing);
    const way = left < 0 ? -1 : 1, upright = Math.abs(mean) > 0.05;
    label("mean-name", [foot[0] + 8 * way, (sy + top[1]) / 2 + 4], upright ? "mean" : "", left < 0 ? "end" : "start");
    label("side-name", [top[0], top[1] + (mean < 0 ? 16 : -7)], upright || named ? "dy" : "");
    label("side-dx-name", [foot[0] + 8 * way, sy + (mean < 0 ? -8 : 18)], named, left < 0 ? "end" : "start").attr("font-weight", "bold");

    const rows = [["x̂", "xHat"], ["dy", "dy"], ["dy − mean", "centered"], ["− part along x̂ = dx", "dx"]];
    const table = part(below, "table.touch-rows");
    part(table, "tr.touch-head").selectAll("th").data(["feature", "1", "2", "3", "length"]).join("th")
      .attr("scope", (d, i) => (i ? "col" : null)).text((d) => d);
    const lines = table.selectAll("tr.touch-row").data(rows).join("tr").attr("class", "touch-row");
    lines.selectAll("th").data((d) => [d[0]]).join("th").attr("scope", "row").text((d) => d);
    write(lines.selectAll("td").data(([, key], i) => [...[0, 1, 2].map((k) => `{${key}.${k}:2}`), `{lengths.${i}:2}`]).join("td"),
      (d) => d);
  },

  tell({ lengths: [, given, , size] }, { rest }) {
    if (given < 0.005) return "dy is zero, so dx is, too.";
    if (size > 0.005) {
      return "Of dy, {lengths.1:2} long, the mean {mean:2} ({gone.0:2} long) and {along:2} x̂ ({gone.1:2} long) are lost. dx arrives, {lengths.3:2} long.";
    }
    return `dx has vanished; dy is {lengths.1:2} long. ${rest
      ? "Up to its mean, it lies along x̂: it asks for another size, which layer norm takes away."
      : "Its entries are equal: it asks for another mean, which layer norm takes away."}`;
  },
});
