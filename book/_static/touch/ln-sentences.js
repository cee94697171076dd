/* The four sentences: whose output moves if one word changes or padding is added. */
(function () {
  "use strict";

  const MOVED = "#d55e00", QUIET = "#767676", FULL = [244, 170, 105], MOST = 2;

  const { mean: average, range } = touch;

  /* Outputs of all tokens, a row of features each. */
  function normalize(rows, norm, { eps, running_mean, running_var }) {
    if (norm === "layer") {
      return rows.map((row) => {
        const mean = average(row), std = Math.sqrt(average(row.map((v) => (v - mean) ** 2)) + eps);
        return row.map((v) => (v - mean) / std);
      });
    }
    const means = norm === "evaluation" ? running_mean : running_mean.map((_, c) => average(rows.map((row) => row[c])));
    const vars = norm === "evaluation" ? running_var
      : means.map((mean, c) => average(rows.map((row) => (row[c] - mean) ** 2)));
    return rows.map((row) => row.map((v, c) => (v - means[c]) / Math.sqrt(vars[c] + eps)));
  }

  /* The tokens of all sentences, one after the other; zeros pad them. */
  function read(data, word, padding) {
    return data.sentences.flatMap((sentence, i) => {
      const words = sentence.map((_, t) => (word === 3 * i + t ? data.changed[t] : data.words[3 * i + t]));
      return [...words, ...range(padding).map(() => data.running_mean.map(() => 0))];
    });
  }

  const find = (word, data) => data.sentences.flat().indexOf(word); // -1 if none has changed

  function compute({ norm, word, padding }, data) {
    const first = normalize(read(data, -1, 0), norm, data);
    const rows = read(data, find(word, data), padding), y = normalize(rows, norm, data);
    const trained = normalize(rows, norm === "evaluation" ? "training" : norm, data);
    const real = range(y.length).filter((k) => k % (3 + padding) < 3);
    const far = real.map((k, n) => Math.max(...y[k].map((v, c) => Math.abs(v - first[n][c]))));
    return {
      y, far, moved: far.filter((each) => each > 1e-4).length, of: far.length,
      gap: Math.max(...real.flatMap((k) => y[k].map((v, c) => Math.abs(v - trained[k][c])))),
    };
  }

  /* The further an output has moved, the stronger the color. */
  const shade = (far) => `rgb(${FULL.map((c) => Math.round(255 - (255 - c) * (0.15 + 0.85 * Math.min(1, far / MOST))))})`;

  function draw(svg, { far }, { state, data, width, change }) {
    const chosen = svg.node().contains(document.activeElement) ? document.activeElement.dataset.word : null;
    svg.selectAll("*").remove();
    const [pads, word] = [state.padding, find(state.word, data)];
    const wide = Math.min(112, (width - 8) / (3 + pads)), high = 50, unit = Math.min(12, (wide - 8) / 5);
    const left = (width - wide * (3 + pads)) / 2;
    const say = (n, old, other) => (n !== word ? old : wide > 95 ? `${old} → ${other}` : other);
    const tokens = data.sentences.flatMap((sentence, i) => range(3 + pads).map((t) => ({
      i, t, n: 3 * i + t, said: t < 3 ? say(3 * i + t, sentence[t], data.substitutes[t]) : "–" })));
    const isChanged = (d) => d.t < 3 && d.n === word, moved = (d) => d.t < 3 && far[d.n] > 1e-4;
    const places = svg.append("g").selectAll("g").data(tokens).join("g")
      .attr("transform", ({ i, t }) => `translate(${left + t * wide},${i * high + 4})`);
    const press = (_, d) => change({ word: d.n === word ? "none" : data.sentences[d.i][d.t] });
    places.filter((d) => d.t < 3).attr("class", "touch-press").attr("data-word", (d) => d.n)
      .attr("tabindex", 0).attr("role", "button").attr("aria-pressed", isChanged)
      .attr("aria-label", (d) => `${data.sentences[d.i][d.t]} → ${data.substitutes[d.t]}`).on("click", press)
      .on("keydown", (event, d) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        press(event, d);
      });
    places.append("rect").attr("width", wide - 4).attr("height", high - 6).attr("rx", 4)
      .attr("fill", (d) => (moved(d) ? shade(far[d.n]) : "#fff")).attr("stroke", (d) => (moved(d) ? MOVED : QUIET))
      .attr("stroke-width", (d) => (moved(d) ? 2 : 1)).attr("stroke-dasharray", (d) => (d.t < 3 ? null : "3 3"));
    places.append("text").attr("x", (wide - 4) / 2).attr("y", 18).attr("text-anchor", "middle").text((d) => d.said)
      .attr("font-weight", (d) => (isChanged(d) ? "bold" : null)).attr("text-decoration", (d) => (isChanged(d) ? "underline" : null));
    // The features; filled are those that share one mean with the third feature of a word.
    const reader = word < 0 ? 0 : word;
    const shares = (d, c) => (state.norm === "layer" ? d.t < 3 && d.n === reader : state.norm === "training" && c === 2);
    places.selectAll("rect.feature").data((d) => range(5).map((c) => ({ ...d, c }))).join("rect")
      .attr("class", "feature").attr("width", unit - 2).attr("height", unit - 2).attr("y", 26)
      .attr("x", ({ c }) => (wide - 4 - 5 * unit) / 2 + c * unit + 1).attr("stroke", QUIET)
      .attr("fill", (d) => (shares(d, d.c) ? data.colors[state.norm] : "#fff"));
    if (chosen) svg.select(`[data-word="${chosen}"]`).node().focus();
  }

  function tell({ moved, gap }, { norm, word, padding }) {
    const what = [word === "none" ? "" : "One word changed. ", padding ? "Padding was added. " : ""].join("");
    const count = `${what || "Nothing changed: press a word, or add padding. "}The outputs of {moved:0} of {of:0} words move. `;
    if (norm === "layer") return `${count}Each word has a mean of its own, and training and evaluation are one function.`;
    if (norm === "training") return `${count}All words${padding ? ", and the padding," : ""} share the mean of each feature (filled: the third).`;
    return `${count}The means are stored, but it is another function than in training: for the same words, outputs of the two differ by up to {gap:1}.`;
  }

  touch.figure("ln-sentences", {
    caption: "Four sentences of three words with five features (squares). Press a word to change it. Orange: its output moves, "
      + "the stronger the color, the further. Filled: features that share one mean; for batch norm the third, as an example.",
    controls: {
      norm: { label: "Norm", value: "training", options: { training: "batch norm, training",
        evaluation: "batch norm, evaluation", layer: "layer norm" } },
      word: { drawn: true, value: "none" },
      padding: { label: "Padding", min: 0, max: 3, step: 1, value: 0 },
    },
    compute,
    height: () => 208,
    draw,
    tell,
  });
})();
