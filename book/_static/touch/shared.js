/* What all figures that one can touch share: controls, handles, numbers and the live sentence.

   The output of a hidden cell holds the data (normlab.book.sources.touch). A figure NAME stands in a
   file NAME.js, which calls touch.figure(NAME, {...}) with
     caption   of the drawing; that of the notebook stays with the picture, on paper;
     controls  key -> {label, value} and nothing but `drawn: true` (what the drawing itself remembers), or options {value: text} of a choice, or min, max, step and
               show(value) of a slider (value and options may be functions of data), or min, max, step alone with `drawn: true`, for values that
               handles in the drawing change (value may be a list, one handle each; `around: true`
               lets an angle go on behind max at min), or
               press(state, data) of a button, which gives the changed part of the state;
     ask       a question above the drawing, where there is one (a text, or state -> text);
     compute   (state, data) -> numbers: what a test compares with normlab;
     height    of the drawing, a function of its width;
     draw      (svg, numbers, {state, data, width, moving, change, part, write, handle, below}), called after
               each change: svg and below (a place for a table) are selections of D3; part(svg,
               "g.name") is the one such part of svg, made at first; change({key: value}) sets a control;
               moving is true while a finger or a mouse has not let go;
     tell      (numbers, state) -> the sentence below, in which {key:2} is a number with 2 decimals.
   The drawing takes the place of the picture in its <figure>, which keeps its number, and the picture
   stands there on paper. The state and the numbers are in touch.figures[NAME]. */
(function () {
  "use strict";

  const figures = {};

  const text = (number, digits) => {
    if (Number.isNaN(number)) return "not a number";
    if (!Number.isFinite(number)) return number < 0 ? "−∞" : "∞";
    const written = number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return (Number(written) === 0 ? written.replace("-", "") : written).replace("-", "−");
  };

  const find = (numbers, path) => path.split(".").reduce((value, key) => value[key], numbers);

  /* Write a sentence into a node; {key:2} is the number under that key, which a test reads. */
  function write(node, sentence, numbers) {
    const tag = node instanceof SVGElement ? "svg:tspan" : "span";
    const parts = sentence.split(/\{([\w.]+):(\d+)\}/);
    const place = d3.select(node).text("");
    for (let i = 0; i < parts.length; i += 3) {
      place.node().append(parts[i]);
      if (i + 2 >= parts.length) continue;
      const [path, digits] = parts.slice(i + 1, i + 3);
      place.append(tag).attr("data-number", path).text(text(find(numbers, path), Number(digits)));
    }
  }

  function part(parent, selector) {
    const [tag, name] = selector.split(".");
    return parent.selectAll(selector).data([0]).join(tag).attr("class", name);
  }

  let numbered = 0;

  /* One control in the row above the drawing; what it gives writes the state into it. */
  function addControl(row, key, control, state, data, change, hold) {
    if (control.drawn) return () => {};
    const place = row.append("span").attr("class", "touch-control");
    if (control.press) {
      place.append("button").attr("type", "button").text(control.label)
        .on("click", () => change(control.press(state, data)));
      return () => {};
    }
    const id = `touch-${++numbered}`;
    place.append("label").attr("for", id).text(control.label);
    if (control.options) {
      const options = Object.entries(
        typeof control.options === "function" ? control.options(data) : control.options);
      const select = place.append("select").attr("id", id).attr("data-control", key)
        .on("change", () => change({ [key]: select.node().value }));
      select.selectAll("option").data(options).join("option")
        .attr("value", ([value]) => value).text(([, shown]) => shown);
      return () => { select.node().value = state[key]; };
    }
    const slider = place.append("input").attr("id", id).attr("data-control", key)
      .attr("type", "range").attr("min", control.min).attr("max", control.max)
      .attr("step", control.step)
      .on("pointerdown", () => hold(true)).on("change pointerup pointercancel", () => hold(false))
      .on("input", () => change({ [key]: Number(slider.node().value) }));
    const say = (value) => (control.show ? control.show(value, data) : String(value));
    const { min, max, step } = control;
    const all = range(Math.round((max - min) / step) + 1).map((k) => say(Number((min + k * step).toFixed(6))));
    const shown = place.append("output").attr("for", id).attr("aria-live", "off")
      .style("min-width", `${Math.max(...all.map((each) => each.length))}ch`); // the row keeps its places
    return () => {
      const said = say(state[key]);
      slider.node().value = state[key];
      slider.attr("aria-valuetext", said);
      shown.text(said);
    };
  }

  /* Let nodes of the drawing be moved by mouse, finger and keyboard. A node's datum d has `key` and,
     in a list, `index`; `where(x, y)` gives the value at a place of the drawing, or
     the values of several controls, {key: value}. */
  function handle(nodes, { controls, state, change, hold }, { label, said, where }) {
    const limit = (key, value) => {
      const { min, max, step, around } = controls[key];
      const rounded = min + Math.round((value - min) / step) * step;
      if (around && rounded > max) return rounded - (max - min);
      if (around && rounded < min) return rounded + (max - min);
      return Number(Math.min(max, Math.max(min, rounded)).toFixed(6));
    };
    const value = (d) => (d.index === undefined ? state[d.key] : state[d.key][d.index]);
    const move = (d, to) => {
      if (typeof to === "object") {
        return change(Object.fromEntries(Object.entries(to).map(([key, each]) => [key, limit(key, each)])));
      }
      return change({
        [d.key]: d.index === undefined ? limit(d.key, to)
          : state[d.key].map((old, i) => (i === d.index ? limit(d.key, to) : old)),
      });
    };
    nodes.classed("touch-handle", true).attr("tabindex", 0).attr("role", "slider")
      .attr("data-control", (d) => (d.index === undefined ? d.key : `${d.key}.${d.index}`))
      .attr("aria-label", label)
      .attr("aria-valuemin", (d) => controls[d.key].min)
      .attr("aria-valuemax", (d) => controls[d.key].max)
      .attr("aria-valuenow", value)
      .attr("aria-valuetext", said)
      .on("keydown", (event, d) => {
        const { min, max, step } = controls[d.key];
        const to = {
          ArrowLeft: value(d) - step, ArrowDown: value(d) - step, PageDown: value(d) - 10 * step,
          ArrowRight: value(d) + step, ArrowUp: value(d) + step, PageUp: value(d) + 10 * step,
          Home: min, End: max,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        move(d, to);
      })
      .each(function () { this.where = where; }) // the scale may change while a finger drags
      .filter(function () { return !this.bound; })
      .each(function () { this.bound = true; })
      .call(d3.drag()
        .subject((event) => ({ x: event.x, y: event.y }))
        .on("start", function () { this.focus(); hold(true); })
        .on("drag", function (event, d) { move(d, this.where(event.x, event.y)); })
        .on("end", () => hold(false)));
  }

  function figure(name, { caption, controls, ask, compute, height, draw, tell }) {
    const stored = document.querySelector(`script.touch[data-figure="${name}"]`);
    const place = document.getElementById(`fig-${name}`);
    const data = JSON.parse(stored.textContent);
    const start = () => Object.fromEntries(Object.entries(controls)
      .filter(([, control]) => !control.press)
      .map(([key, { value }]) => [key, typeof value === "function" ? value(data) : value]));
    const state = start();
    const panel = d3.create("div").attr("class", "touch-panel");
    const row = panel.append("div").attr("class", "touch-controls");
    const change = (part) => { Object.assign(state, part); update(); };
    let moving = false;
    const hold = (held) => { if (held !== moving) { moving = held; if (!held) update(); } };
    const writers = Object.entries({
      ...controls, reset: { label: "Start again", press: start },
    }).map(([key, control]) => addControl(row, key, control, state, data, change, hold));
    const asked = ask && panel.append("p").attr("class", "touch-ask");
    const svg = panel.append("svg").attr("role", "group").attr("aria-label", "Drawing")
      .attr("aria-describedby", `fig-${name}-told`);
    const below = panel.append("div").attr("class", "touch-below");
    const told = panel.append("p").attr("class", "touch-told").attr("id", `fig-${name}-told`)
      .attr("aria-live", "polite");

    function update() {
      const numbers = compute(state, data);
      figures[name] = { state, data, numbers };
      writers.forEach((show) => show());
      const width = Math.min(row.node().clientWidth || 640, 680);
      svg.attr("width", width).attr("height", height(width));
      draw(svg, numbers, {
        state, data, width, moving, change, part, below,
        write: (nodes, sentence) => nodes.each(function (d, i) {
          write(this, typeof sentence === "function" ? sentence(d, i) : sentence, numbers);
        }),
        handle: (nodes, described) => handle(nodes, { controls, state, change, hold }, described),
      });
      if (ask) asked.text(typeof ask === "function" ? ask(state) : ask);
      write(told.node(), tell(numbers, state, data), numbers);
    }

    update();
    place.classList.add("touched");
    place.querySelector("img").loading = "eager"; // paper shows it
    place.insertBefore(panel.node(), place.querySelector("figcaption"));
    d3.select(place).select(".caption-text").classed("touch-printed", true)
      .select(function () { return this.parentNode.insertBefore(document.createElement("span"), this); })
      .attr("class", "caption-text touch-caption").text(caption);
    new ResizeObserver(() => update()).observe(panel.node());
  }

  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const short = (value) => {
    if (value === 0 || (value >= 0.01 && value <= 1000)) return String(value);
    const power = Math.round(Math.log10(value));
    return `10${power < 0 ? "⁻" : ""}${String(Math.abs(power)).replace(/\d/g, (d) => SUPERSCRIPTS[d])}`;
  };

  /* White paper with axes and a title, as in the pictures; gives the place for curves, which it cuts
     off at the edge. */
  function panel(svg, { left, top, width, height, x, y, xTicks, yTicks, title, xLabel, xNames = short }) {
    const place = svg.append("g").attr("transform", `translate(${left},${top})`);
    place.append("rect").attr("class", "touch-paper").attr("width", width).attr("height", height).attr("fill", "#fff");
    place.append("g").attr("transform", `translate(0,${height})`)
      .call(d3.axisBottom(x).tickValues(xTicks).tickFormat(xNames).tickSizeOuter(0));
    place.append("g").call(d3.axisLeft(y).tickValues(yTicks).tickFormat(short).tickSizeOuter(0));
    place.append("text").attr("y", -8).text(title);
    place.append("text").attr("x", width).attr("y", height + 34).attr("text-anchor", "end").text(xLabel);
    return place.append("svg").attr("width", width).attr("height", height);
  }

  const range = (length) => Array.from({ length }, (_, k) => k);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  window.touch = { figure, figures, panel, range, mean };
})();
