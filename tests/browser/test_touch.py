"""The figures that one can touch answer to every control, and show what the package computes.

Each figure is an entry of FIGURES. The test sets all its controls at random, by their own events
and by the keyboard, reads the settings back from what the page shows, and compares the numbers of
the script and those written in the figure with what `expected` computes by normlab.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import built_pages as site
import numpy as np
import pytest
import torch

from normlab import reference, whitening
from normlab.book.experiments.deep_norm.depth_profiles import depth_profiles
from normlab.book.experiments.deep_norm.groups import make_batches, make_model
from normlab.book.experiments.invariance.effective_learning_rate import (
    effective_learning_rate,
    equilibrium_norm,
    equilibrium_rotation,
)
from normlab.book.experiments.invariance.length_recurrence import follow_length
from normlab.book.experiments.sequence_training import token_variance
from normlab.book.experiments.tables import where
from normlab.book.experiments.warmup.warmup_inside import warmup_inside
from normlab.book.experiments.warmup.warmup_length import warmup_length
from normlab.reference import moments
from normlab.residual import deep_norm_constants

SETTINGS = 8
RECORDS = site.ROOT / "book/_data"
Numbers = Mapping[str, Any]


class Figure(NamedTuple):
    """A figure to touch.

    Attributes:
        page: of the book, where it stands.
        expected: gives the numbers of the script from the settings and the data, by normlab.
        exact: the numbers of which no bit may differ.
    """

    page: str
    expected: Callable[[dict[str, Any], dict[str, Any]], Numbers]
    exact: tuple[str, ...] = ()


def company(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    batch = int(setting["batch"])

    def normalize(x: list[float]) -> np.ndarray:
        rows = np.array(x[:batch])[:, None]
        y, _ = reference.batch_norm(
            rows,
            np.array([data["running_mean"]]),
            np.array([data["running_var"]]),
            training=setting["mode"] == "training",
            eps=data["eps"],
        )
        return y[:, 0]

    x, now, before = np.array(setting["x"]), normalize(setting["x"]), normalize(data["x"])
    var = x[:batch].var() if setting["mode"] == "training" else data["running_var"]
    return {
        "mean": x[:batch].mean() if setting["mode"] == "training" else data["running_mean"],
        "std": np.sqrt(var + data["eps"]),
        "y": now,
        "before": before,
        "moved": int((np.abs(now - before) > 1e-4).sum()),
        "batch": batch,
        "touched": setting["x"][:batch] != data["x"][:batch],
    }


def gradient(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    axes = np.radians([90.0, 210.0, 330.0])

    def in_plane(size: float, degrees: float) -> np.ndarray:
        return size * np.sqrt(2 / 3) * np.cos(np.radians(degrees) - axes)

    x_hat, cache = reference.layer_norm(in_plane(np.sqrt(3), setting["token"]), (3,), eps=0.0)
    dy = in_plane(setting["rest"], setting["dy"]) + setting["mean"]
    dx, along = reference.layer_norm_backward(dy, cache).dx, (dy * x_hat).mean()
    return {
        "xHat": x_hat,
        "dy": dy,
        "centered": dy - dy.mean(),
        "dx": dx,
        "along": along,
        "mean": dy.mean(),
        "leftMean": 0.0,
        "leftAlong": 0.0,
        "lengths": [np.linalg.norm(each) for each in (x_hat, dy, dy - dy.mean(), dx)],
        "gone": [np.linalg.norm(each) for each in (dy.mean() * np.ones(3), along * x_hat)],
    }


def cliff(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    """By torch, and where NumPy has the dtype also by the reference, which must agree."""
    dtype = getattr(torch, setting["dtype"])
    offsets = torch.tensor(data["offsets"], dtype=torch.float64)

    def variances(offset: torch.Tensor) -> dict[str, torch.Tensor]:
        x = torch.stack([offset - 1, offset + 1], -1).to(dtype)
        mean = x.mean(-1, keepdim=True)
        found = {
            "x": x,
            "squares": x.square(),
            "meanSquare": x.square().mean(-1),
            "mean": mean[..., 0],
            "squaredMean": mean[..., 0].square(),
            "differences": x - mean,
            "twoPasses": (x - mean).square().mean(-1),
        }
        found["onePass"] = found["meanSquare"] - found["squaredMean"]
        if dtype != torch.bfloat16:
            with np.errstate(over="ignore", invalid="ignore"):
                ways = {"onePass": moments.naive_one_pass, "twoPasses": moments.two_pass}
                for key, way in ways.items():
                    var = way(x.numpy(), -1).var[..., 0]
                    np.testing.assert_array_equal(found[key].numpy(), var)
        return found

    at = int(setting["at"])
    now = {key: value.double().numpy() for key, value in variances(offsets[at]).items()}
    curves = variances(offsets)
    return {
        **now,
        "offset": data["offsets"][at],
        "curveOne": curves["onePass"].double().numpy(),
        "curveTwo": curves["twoPasses"].double().numpy(),
    }


def balance(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    decay = (0.0, 0.002, 0.004, 0.01, 0.02, 0.05, 0.1, 0.2)[int(setting["decay"])]
    scale = (0.1, 0.3, 1.0, 3.0, 10.0)[int(setting["start"])]
    steps = (*range(6), 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400, 600, 800)
    step = steps[int(setting["step"])]
    given = {"lr": data["rate"], "weight_decay": decay, "unit_gradient": data["gradient"]}
    lengths, angles = follow_length(scale * data["length"], **given, steps=data["steps"])
    numbers = {
        "decay": decay,
        "scale": scale,
        "step": step,
        "lengths": lengths,
        "angles": np.degrees(angles),
        "now": lengths[step],
        "last": np.degrees(angles[max(step - 1, 0)]),
    }
    runs = effective_learning_rate.read(RECORDS / "effective_learning_rate.jsonl")
    measured = decay in {0.0, 0.02} and scale in {0.3, 1.0, 3.0}
    if measured and step and step % 50 == 0:
        same = {"weight_decay": decay, "start_scale": scale}
        runs = where(runs, norm="layer_norm", schedule="fixed", **same)
        seen = np.sqrt(data["rate"] / np.median(runs.effective_lrs.tolist(), 0)[step // 10])
        assert decay or seen < lengths[step]  # the gradient fades
        turned = np.degrees(np.median(runs.rotations.tolist(), 0)[step // 50 - 1])
        numbers |= {"seen": seen, "turned": turned}
    if not decay:
        return numbers
    return numbers | {
        "length": equilibrium_norm(**given),
        "angle": np.degrees(equilibrium_rotation(data["rate"], decay)),
    }


def triangle(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    rate = (0.05, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0, 50.0, 100.0)[int(setting["rate"])]
    scale = (0.5, 1.0, 2.0, 4.0, 10.0)[int(setting["length"])]
    given = {"lr": rate, "weight_decay": 0.0, "unit_gradient": data["gradient"], "steps": 1}
    (old, new), (angle,) = follow_length(scale * data["length"], **given)
    return {
        "rate": rate,
        "scale": scale,
        "old": old,
        "step": rate * data["gradient"] / old,
        "new": new,
        "growth": 100 * (new / old - 1),
        "angle": np.degrees(angle),
    }


def valley(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    def standardize(x: np.ndarray) -> np.ndarray:
        found = moments.two_pass(x, 0)
        return (x - found.mean) / np.sqrt(found.var)

    stage, correlation = setting["stage"], setting["correlation"]
    first, other = np.array(data["first"]), np.array(data["other"])
    rest, start = np.sqrt(1 - correlation**2), np.array([3.0, 0.1 if stage == "stored" else 1.0])
    x = np.stack([first, 2 + correlation * (first - 2) + rest * (other - 2)], 1)
    if stage == "stored":
        x = x * [1, 10]
    elif stage != "meters":
        x = standardize(x)
        white = whitening.whiten(torch.from_numpy(x), "pca").y.numpy()
    if stage in ("rotated", "whitened"):
        x, start = (each @ np.array([[1, -1], [1, 1]]) / np.sqrt(2) for each in (x, start))
    if stage == "whitened":
        x = standardize(x)
        found = whitening.make_covariance(torch.from_numpy(x))
        np.testing.assert_allclose(found, np.eye(2), atol=1e-9)
        if correlation > 0:  # without it the axes are arbitrary
            np.testing.assert_allclose(abs(x), abs(white), atol=1e-6)
    bowl = x.T @ x / len(x)
    flat, steep = np.linalg.eigvalsh(bowl)
    path = [start]
    losses = [path[0] @ bowl @ path[0]]
    while losses[-1] >= 1e-6 * losses[0]:
        path.append(path[-1] - bowl @ path[-1] / steep)
        losses.append(path[-1] @ bowl @ path[-1])
    return {
        "a": x[:, 0],
        "b": x[:, 1],
        "correlation": np.corrcoef(x.T)[0, 1],
        "steep": steep,
        "flat": flat,
        "condition": np.linalg.cond(bowl),
        "steps": len(path) - 1,
        "path": path[:31],
    }


def sentences(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    def normalize(x: np.ndarray, norm: str) -> np.ndarray:
        if norm == "layer":
            return reference.layer_norm(x, (5,), eps=data["eps"])[0]
        stored = (np.array(data[f"running_{name}"]) for name in ("mean", "var"))
        rows, training = x.reshape(-1, 5), norm == "training"
        return reference.batch_norm(rows, *stored, training=training, eps=data["eps"])[0].reshape(
            x.shape
        )

    norm, words = setting["norm"], [w for sentence in data["sentences"] for w in sentence]
    before = np.array(data["words"])
    after = before.copy()
    if setting["word"] != "none":
        changed = words.index(setting["word"])
        after[changed] = data["changed"][changed % 3]
    padded = np.pad(after.reshape(4, 3, 5), [(0, 0), (0, int(setting["padding"])), (0, 0)])
    y = normalize(padded, norm)
    trained = normalize(padded, "training" if norm == "evaluation" else norm)
    far = abs(y[:, :3] - normalize(before.reshape(4, 3, 5), norm)).max(-1).flatten()
    return {
        "y": y.reshape(-1, 5),
        "far": far,
        "moved": (far > 1e-4).sum(),
        "of": 12,
        "gap": abs(y - trained)[:, :3].max(),
    }


def warmup_map(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    rate = warmup_length.grid["lr"][int(setting["rate"])]
    length = warmup_length.grid["length"][int(setting["length"])]
    ends = warmup_length.read(RECORDS / "warmup_length.jsonl")
    ends = where(ends, placement="post_norm", lr=rate, length=length)
    inside = where(warmup_inside.read(RECORDS / "warmup_inside.jsonl"), lr=rate)
    runs, cold = where(inside, length=length), where(inside, length=0)
    steps = warmup_inside.settings["check_at"]
    both = ends.merge(runs, on="seed")
    lost = both[both.solved & (both.steps < steps[-1])].losses.str[-1] > 1
    middle = np.median(runs.token_variances.tolist(), 0)
    return {
        "rate": rate,
        "length": length,
        "losses": runs.losses.tolist(),
        "variances": runs.token_variances.tolist(),
        "ends": both.solved.tolist(),
        "least": [min(run) for run in both.token_variances],
        "coldLosses": np.median(cold.losses.tolist(), 0),
        "coldVariances": np.median(cold.token_variances.tolist(), 0),
        "solved": ends.solved.sum(),
        "lost": lost.sum(),
        "updates": ends.steps[ends.solved].median() if ends.solved.any() else 0,
        "lowest": steps[middle.argmin()],
        "power": np.log10(middle.min()),
    }


def stream(setting: dict[str, Any], data: dict[str, Any]) -> Numbers:
    depth = depth_profiles.grid["depth"][int(setting["depth"])]
    runs = depth_profiles.read(RECORDS / "depth_profiles.jsonl")
    runs = where(runs, group=setting["group"], depth=depth)
    differ = np.median(runs.token_variances.tolist(), 0)
    spread = runs.gradient_spread.median()
    rule = []
    if setting["group"] != "pre_norm":
        r = branch_by_rule(setting["group"], depth)
        rule = [first_share() * (1 + r**2) ** (-2 * layer) for layer in runs.layers.iloc[0]]
    return {
        "group": setting["group"],
        "layers": depth,
        "numbered": runs.layers.iloc[0],
        "differ": differ,
        "rule": rule,
        "spread": spread,
        "powers": np.log10(spread),
        "share": differ[-1],
        "ruled": rule[-1] if rule else 0,
    }


def branch_by_rule(group: str, layers: int) -> float:
    """How long a branch is beside its skip, if its matrices keep lengths."""
    alpha, beta, _, _ = deep_norm_constants(encoder_layers=layers)
    if group == "post_norm":
        return 1.0
    return (1 if group == "alpha only" else beta**2) / (1 if group == "beta only" else alpha)


@functools.cache
def first_share() -> float:
    """The share of the embeddings that differs between tokens."""
    shares = []
    for seed in range(3):
        model = make_model("deep_norm", "large", layers=50, seed=seed).double()
        with torch.no_grad():
            h = model.hidden_states(next(make_batches("large", seed=seed))[0])[0]
        shares.append(token_variance(h))
    return sorted(shares)[1]


CLIFF = ("x", "squares", "meanSquare", "mean", "squaredMean", "differences", "onePass", "twoPasses")
FIGURES = {
    "bn-company": Figure("book/batch_norm.html", company),
    "ln-gradient": Figure("book/layer_norm_further.html", gradient),
    "num-cliff": Figure("book/numerics.html", cliff, (*CLIFF, "curveOne", "curveTwo")),
    "inv-balance": Figure("book/invariance.html", balance),
    "inv-triangle": Figure("book/invariance.html", triangle),
    "ln-sentences": Figure("book/layer_norm.html", sentences),
    "mot-whitening": Figure("book/motivation.html", valley),
    "warmup-map": Figure("book/warmup.html", warmup_map),
    "dn-inside": Figure("book/deep_norm.html", stream),
}

READ = """name => {
  const setting = {};
  for (const node of document.querySelectorAll(`#fig-${name} [data-control]`)) {
    const value = node.ariaValueNow ?? node.value;
    const read = node.tagName === 'SELECT' ? value : Number(value);
    const [key, index] = node.dataset.control.split('.');
    if (index === undefined) setting[key] = read;
    else (setting[key] ??= [])[index] = read;
  }
  const {state, data, numbers} = touch.figures[name];
  return {setting: {...state, ...setting}, data, numbers};
}"""
WRITTEN = """name => [...document.querySelectorAll(`#fig-${name} [data-number]`)]
  .map(node => [node.dataset.number, node.textContent])"""

CLASSES, LIVE = "all => all.map(e => e.className)", "caption-text touch-caption"
# Of a phone, how high the figure is, and where its controls are once half the drawing has gone by.
ON_A_PHONE = """async name => {
  const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  await frame();
  const place = document.getElementById(`fig-${name}`);
  const find = name =>
    (place.querySelector(name) ?? document.querySelector(name)).getBoundingClientRect();
  const header = find('.bd-header-article'), drawing = find('svg');
  const gone = drawing.top + drawing.height / 2 - header.bottom - find('.touch-controls').height;
  window.scrollBy({top: gone, behavior: 'instant'});
  await frame();
  const bottom = find('.bd-header-article').bottom;
  return [place.clientHeight, find('.touch-controls').top - bottom];
}"""


def set_at_random(tab: Any, name: str, rng: np.random.Generator) -> None:
    """Change all controls of a figure; of many handles only four."""
    place = tab.locator(f"#fig-{name}")
    for control in place.locator("select").all():
        options = control.locator("option").evaluate_all("all => all.map(o => o.value)")
        control.select_option(str(rng.choice(options)))
    for control in place.locator("input[type=range]").all():
        low, high, step = (float(control.get_attribute(a) or 1) for a in ("min", "max", "step"))
        steps = rng.integers(0, round((high - low) / step) + 1)
        control.fill(f"{low + steps * step:.6g}")
    if words := place.locator("[role=button]").all():
        words[rng.integers(len(words))].press("Enter")
    handles = place.locator("[role=slider]").all()
    for i in rng.permutation(len(handles))[:4]:
        handles[i].focus()
        for key in rng.choice(["ArrowLeft", "ArrowRight", "PageUp", "PageDown"], size=4):
            tab.keyboard.press(str(key))


def find(numbers: Any, path: str) -> float:
    for key in path.split("."):
        numbers = numbers[int(key)] if isinstance(numbers, list | np.ndarray) else numbers[key]
    return float(numbers)


def read_number(text: str) -> float:
    plain = text.replace(",", "").replace("−", "-").replace("∞", "inf")
    return float("nan") if plain == "not a number" else float(plain)


def compare(tab: Any, name: str) -> None:
    """Fail unless the figure computes and shows what normlab computes."""
    read = tab.evaluate(READ, name)
    expected = FIGURES[name].expected(read["setting"], read["data"])
    assert set(read["numbers"]) == set(expected)
    for key, value in expected.items():
        found = np.array(read["numbers"][key])
        if key in FIGURES[name].exact:
            np.testing.assert_array_equal(found, value, err_msg=key)
        elif np.asarray(value).dtype.kind in "OU":
            assert read["numbers"][key] == value
        else:
            least = max(1e-9 * np.abs(value).max(initial=0.0), 1e-12)
            np.testing.assert_allclose(found, value, rtol=1e-6, atol=least, err_msg=key)
    written = tab.evaluate(WRITTEN, name)
    assert written
    for path, text in written:
        digits = len(re.sub(r"^[^.]*\.?", "", text))
        np.testing.assert_allclose(
            read_number(text),
            find(expected, path),
            rtol=0,
            atol=0.501 * 10.0**-digits,
            err_msg=path,
        )


@pytest.fixture(scope="module", params=FIGURES)
def figure(request):
    return request.param


def visit(desk: Any, name: str) -> Any:
    """The page of a figure, opened unless it is there: a figure does not touch another."""
    tab = desk.find(FIGURES[name].page)
    tab.wait_for_selector(f"#fig-{name}.touched")
    return tab


def test_shows_what_normlab_computes(desk, figure):
    tab, rng = visit(desk, figure), np.random.default_rng(0)
    compare(tab, figure)
    for _ in range(SETTINGS):
        set_at_random(tab, figure, rng)
        compare(tab, figure)
    tab.locator(f"#fig-{figure}").get_by_role("button", name="Start again").click()
    compare(tab, figure)


def test_is_named_told_and_stands_in_the_figure(desk, figure):
    tab = visit(desk, figure)
    place = tab.locator(f"#fig-{figure}")
    assert place.locator("img").is_hidden()
    assert place.locator(".caption-text:visible").evaluate_all(CLASSES) == [LIVE]
    assert place.locator("figcaption .caption-number").count() == 1
    for control in place.locator("select, input, button, [role=slider], [role=button]").all():
        assert control.evaluate(
            "e => (e.ariaLabel ?? e.labels?.[0]?.innerText ?? e.innerText).trim()"
        )
        assert control.evaluate("e => e.tabIndex") == 0
    assert place.locator("[aria-live=polite]").inner_text()


def test_the_picture_stands_on_paper(desk, figure):
    tab = visit(desk, figure)
    tab.emulate_media(media="print")
    assert tab.locator(f"#fig-{figure} img").is_visible()
    assert tab.locator(f"#fig-{figure} .touch-panel").is_hidden()
    printed = tab.locator(f"#fig-{figure} .caption-text:visible").evaluate_all(CLASSES)
    assert printed == ["caption-text touch-printed"]
    tab.emulate_media(media="null")


def test_the_picture_stands_without_scripts(plain_tab, figure):
    plain_tab.goto((site.BUILT / FIGURES[figure].page).as_uri())
    assert plain_tab.locator(f"#fig-{figure} img").is_visible()
    assert plain_tab.locator(f"#fig-{figure} :is(select, input, button)").count() == 0
    assert "\\" not in plain_tab.locator(f"#fig-{figure} figcaption").inner_text()  # no formula


def test_fits_a_phone_and_keeps_its_controls_in_view(desk, figure):
    tab = visit(desk, figure)
    tab.set_viewport_size({"width": 390, "height": 844})
    height, below_the_header = tab.evaluate(ON_A_PHONE, figure)
    assert height < 900
    assert -2 < below_the_header < 5


def test_a_handle_is_dragged(desk):
    tab = visit(desk, "bn-company")
    handle = tab.locator("#fig-bn-company [data-control='x.0']")
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    before = float(handle.get_attribute("aria-valuenow"))
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 80, box["y"] + box["height"] / 2)
    tab.mouse.up()
    assert float(handle.get_attribute("aria-valuenow")) > before + 0.5
    compare(tab, "bn-company")


def test_a_drag_beside_the_line_makes_the_gradient_vanish(desk):
    tab = visit(desk, "ln-gradient")
    place = tab.locator("#fig-ln-gradient")
    place.get_by_role("button", name="Start again").click()
    place.scroll_into_view_if_needed()
    dy, x_hat = (place.locator(f"[data-control='{key}']").bounding_box() for key in ("dy", "token"))
    half = dy["width"] / 2
    tab.mouse.move(dy["x"] + half, dy["y"] + half)
    tab.mouse.down()
    tab.mouse.move(x_hat["x"] + half - 3, x_hat["y"] + half - 8)  # five degrees away
    tab.mouse.up()
    assert place.locator("[aria-live=polite]").inner_text().startswith("dx has vanished")
    assert place.locator("text.dx-name").text_content() == ""
    compare(tab, "ln-gradient")


def test_the_task_keeps_the_ways_that_were_found(desk):
    tab = visit(desk, "ln-gradient")
    place = tab.locator("#fig-ln-gradient")
    place.get_by_role("button", name="Start again").click()
    found, told = [], place.locator("p.touch-ask")
    for values in ({"token": 15}, {"rest": 0}, {"mean": 0}, {"mean": 0.5, "rest": 1, "dy": 15}):
        for key, value in values.items():
            control = place.locator(f"[data-control='{key}']")
            if key in {"mean", "rest"}:
                control.fill(str(value))
            while key in {"token", "dy"} and control.get_attribute("aria-valuenow") != str(value):
                control.press("ArrowDown")
        found.append(told.inner_text().partition("Found: ")[2])
    assert found == ["none yet.", "mean ✓.", "mean ✓.", "mean ✓, size ✓."]
    place.get_by_role("button", name="Start again").click()
    assert told.inner_text().endswith("none yet.")


def test_what_a_drag_only_passes_is_not_found(desk):
    tab = visit(desk, "ln-gradient")
    place = tab.locator("#fig-ln-gradient")
    place.get_by_role("button", name="Start again").click()
    place.scroll_into_view_if_needed()
    token, dy, circle = (
        place.locator(each).bounding_box()
        for each in ("[data-control=token]", "[data-control=dy]", ".circle")
    )
    along, tip, center = (
        np.array([b["x"] + b["width"] / 2, b["y"] + b["height"] / 2]) for b in (token, dy, circle)
    )
    told = place.locator("p.touch-ask")
    tab.mouse.move(*tip)
    tab.mouse.down()
    tab.mouse.move(*(center + 0.6 * (along - center)))
    assert place.locator("[data-control=dy]").get_attribute("aria-valuenow") == "20"
    assert told.inner_text().endswith("none yet.")
    tab.mouse.move(*tip)
    tab.mouse.up()
    assert told.inner_text().endswith("none yet.")
    tab.mouse.down()
    tab.mouse.move(*(center + 0.6 * (along - center)))
    tab.mouse.up()
    assert told.inner_text().endswith("size ✓.")


def test_a_cell_that_a_slider_passes_stays_closed(desk):
    tab = visit(desk, "warmup-map")
    place = tab.locator("#fig-warmup-map")
    place.get_by_role("button", name="Start again").click()
    place.scroll_into_view_if_needed()
    box = place.get_by_label("Warmup").bounding_box()
    middle = box["y"] + box["height"] / 2
    tab.mouse.move(box["x"] + 8, middle)
    tab.mouse.down()
    for share in (0.3, 0.5, 0.8, 1.0):
        tab.mouse.move(box["x"] + share * box["width"] - 4, middle)
    count = "e => [...e.querySelectorAll('svg text')].filter(t => t.textContent === '?').length"
    closed = [place.evaluate(count)]
    tab.mouse.up()
    closed.append(place.evaluate(count))
    assert closed == [19, 18]


def test_the_tip_of_dy_is_dragged_inward(desk):
    tab = visit(desk, "ln-gradient")
    place = tab.locator("#fig-ln-gradient")
    place.get_by_role("button", name="Start again").click()
    place.scroll_into_view_if_needed()
    dy, circle = (place.locator(each).bounding_box() for each in ("[data-control=dy]", ".circle"))
    tip, center = ((b["x"] + b["width"] / 2, b["y"] + b["height"] / 2) for b in (dy, circle))
    tab.mouse.move(*tip)
    tab.mouse.down()
    tab.mouse.move(*((a + b) / 2 for a, b in zip(tip, center, strict=True)))
    tab.mouse.up()
    assert place.get_by_label("Length of dy − mean").input_value() == "0.5"
    assert place.locator("[data-control=dy]").get_attribute("aria-valuenow") == "75"
    compare(tab, "ln-gradient")


def test_the_last_two_runs_stay_on_axes_that_do_not_move(desk):
    tab = visit(desk, "inv-balance")
    place = tab.locator("#fig-inv-balance")

    def look() -> tuple[list[int], list[str]]:
        parts = place.locator("svg > svg, g > svg")
        former = "e => e.querySelectorAll('path[stroke=\"#aaa\"]').length"
        return parts.evaluate_all(f"all => all.map({former})"), place.locator(".tick").evaluate_all(
            "all => all.map(e => e.textContent + e.getAttribute('transform'))"
        )

    place.get_by_role("button", name="Start again").click()
    (none, axes), former = look(), []
    assert none == [0, 0]
    for start in (3, 4, 0):
        place.get_by_label("Start").fill(str(start))
        former.append(look())
    assert former == [([1, 1], axes), ([2, 2], axes), ([2, 2], axes)]
    place.get_by_role("button", name="Start again").click()
    assert look() == (none, axes)


def test_nothing_has_moved_before_the_reader_moves_it(desk):
    for name in ("bn-company", "ln-sentences"):
        tab = visit(desk, name)
        tab.locator(f"#fig-{name}").get_by_role("button", name="Start again").click()
        assert tab.evaluate(f"touch.figures['{name}'].numbers.moved") == 0


@pytest.fixture(scope="module")
def phone(browser):
    """A tab that knows fingers, and the same tab's way to send them."""
    size = {"width": 390, "height": 844}
    context = browser.new_context(viewport=size, has_touch=True, is_mobile=True)
    tab = context.new_page()
    yield tab, context.new_cdp_session(tab)
    context.close()


@pytest.mark.parametrize(
    ("figure", "control", "way"),
    [("bn-company", "x.1", (90, 20)), ("ln-gradient", "dy", (-70, 60))],
)
def test_a_handle_follows_a_finger(phone, figure, control, way):
    tab, fingers = phone
    tab.goto((site.BUILT / FIGURES[figure].page).as_uri())
    tab.wait_for_selector(f"#fig-{figure}.touched")
    handle = tab.locator(f"#fig-{figure} [data-control='{control}']")
    handle.evaluate("node => node.scrollIntoView({block: 'center', behavior: 'instant'})")
    tab.evaluate("() => new Promise(done => setTimeout(done, 300))")
    box, before = handle.bounding_box(), tab.evaluate("scrollY")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def send(kind: str, *points: dict[str, float]) -> None:
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

    send("touchStart", {"x": x, "y": y})
    values = []
    for part in (0.2, 0.4, 0.6, 0.8, 1.0):
        send("touchMove", {"x": x + part * way[0], "y": y + part * way[1]})
        values.append(float(handle.get_attribute("aria-valuenow")))
    send("touchEnd")
    assert len({*values}) == len(values)  # the finger is never lost
    assert tab.evaluate("scrollY") == before
    compare(tab, figure)


def test_a_cell_of_the_map_is_chosen_by_a_click(desk):
    tab = visit(desk, "warmup-map")
    place = tab.locator("#fig-warmup-map")
    place.get_by_role("button", name="Start again").click()
    drawing = place.locator("svg").first
    right = drawing.bounding_box()["width"] - 20
    drawing.click(position={"x": right, "y": 40})  # the last cell of the first row
    assert place.locator("output").all_inner_texts() == ["0.03", "300 updates"]
    compare(tab, "warmup-map")


def test_a_count_of_the_map_is_shown_once_its_cell_was_chosen_and_nothing_jumps(desk):
    tab = visit(desk, "warmup-map")
    place = tab.locator("#fig-warmup-map")
    place.get_by_role("button", name="Start again").click()

    def look() -> tuple[list[str], float]:
        top = "e => e.querySelector('svg').getBoundingClientRect().top - e.offsetTop"
        texts = place.locator("svg text").all_text_contents()
        return [text for text in texts if text == "?"], place.evaluate(top)

    hidden, top = look()
    assert len(hidden) == 19
    place.get_by_label("Warmup").fill("4")
    assert look() == (hidden[1:], top)
    place.get_by_label("Peak rate").fill("3")
    assert look() == (hidden[2:], top)
    assert place.get_by_text("4, 3 lost", exact=True).count() == 1


def test_the_map_takes_the_arrow_keys_and_its_dots_part_at_a_millionth(desk):
    tab = visit(desk, "warmup-map")
    place = tab.locator("#fig-warmup-map")
    place.get_by_role("button", name="Start again").click()
    place.locator(".touch-press").nth(0).click()  # the lowest rate, no warmup
    for keys in ("UUU", "R", "DDD", "R", "UUU", "R", "DDD", "R", "UUU"):
        for key in keys:
            tab.keyboard.press({"U": "ArrowUp", "D": "ArrowDown", "R": "ArrowRight"}[key])
            compare(tab, "warmup-map")
    assert place.locator("output").all_inner_texts() == ["0.03", "300 updates"]
    dots = """place => [...place.querySelectorAll('circle')].map(dot => [
      dot.getAttribute('fill') !== '#fff',
      dot.getAttribute('cx') - dot.parentNode.querySelector('line').getAttribute('x1') < 0,
    ])"""
    solved, deep = np.array(place.evaluate(dots)).T
    assert (len(solved), deep.sum(), solved[deep].any()) == (100, 28, False)
    assert (~solved[~deep]).sum() < 6


def test_a_line_of_the_stream_is_drawn_once_its_block_was_chosen_at_one_height(desk):
    tab = visit(desk, "dn-inside")
    place = tab.locator("#fig-dn-inside")
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        place.get_by_role("button", name="Start again").click()
        drawn, ruled, heights = [], [], []
        for name in ("Post-LN", "Pre-LN", "DeepNorm", "α only", "β only"):
            place.get_by_role("button", name=name).press("Enter")
            assert place.locator("[aria-pressed=true]").text_content() == name
            drawn.append(place.locator("path.line").count())
            ruled.append(bool(place.locator("path.rule").get_attribute("d")))
            for depth in range(6):
                place.get_by_label("Layers").fill(str(depth))
                heights.append(place.evaluate("e => e.clientHeight"))
            compare(tab, "dn-inside")
        assert drawn == [2, 4, 6, 8, 10]
        assert place.locator("circle").count() == 5 * 6  # each block, at each depth up to the last
        assert ruled == [True, False, True, True, True]
        assert len({*heights}) == 1


def test_the_cliff_shows_the_offsets_that_were_chosen_at_one_height(desk):
    tab = visit(desk, "num-cliff")
    tab.set_viewport_size({"width": 390, "height": 844})
    place = tab.locator("#fig-num-cliff")
    place.get_by_role("button", name="Start again").click()
    heights, crosses = [], []
    for at in (42, 0, 42):
        place.get_by_label("Offset").fill(str(at))
        heights.append(place.evaluate("e => e.clientHeight"))
        crosses.append(place.locator("path.one").count())
    assert len({*heights}) == 1
    assert crosses == [2, 3, 3]


def test_a_word_is_changed_by_a_click_and_changed_back(desk):
    tab = visit(desk, "ln-sentences")
    place = tab.locator("#fig-ln-sentences")
    place.get_by_role("button", name="Start again").click()
    changed, chosen = place.locator("[aria-pressed=true]"), []
    for _ in range(2):
        place.locator("svg text").nth(7).click()  # the second word of the third sentence
        compare(tab, "ln-sentences")
        chosen.append(changed.evaluate_all("all => all.map(e => e.ariaLabel)"))
    assert chosen == [["sing → play"], []]
    for key in ("Enter", "Space", "Tab", "Enter"):  # the word keeps the focus
        tab.keyboard.press(key)
    assert changed.evaluate_all("all => all.map(e => e.ariaLabel)") == ["well → here"]


def test_all_figures_are_here_and_small():
    folder = site.ROOT / "book/_static/touch"
    scripts = {path.stem for path in folder.glob("*.js")} - {"d3", "shared"}
    assert scripts == set(FIGURES)
    for name in scripts:
        assert len((folder / f"{name}.js").read_text(encoding="utf-8").splitlines()) <= 150


# What follows tests the test itself.


@pytest.mark.parametrize(
    "fault",
    [
        "figure => { figure.numbers.y[1] *= 1 + 1e-5; }",
        "figure => { delete figure.numbers.std; }",
        "() => { document.querySelector('#fig-bn-company [data-number]').textContent = '7.00'; }",
    ],
)
def test_a_wrong_number_is_seen(desk, fault):
    tab = visit(desk, "bn-company")
    tab.locator("#fig-bn-company button").click()
    compare(tab, "bn-company")
    tab.evaluate(f"() => ({fault})(touch.figures['bn-company'])")
    with pytest.raises(AssertionError):
        compare(tab, "bn-company")
