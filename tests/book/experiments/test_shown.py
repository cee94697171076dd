"""What a chapter shows of `normlab.book.experiments` is what its experiments run."""

import ast
import inspect
import itertools
import json
import sys
from pathlib import Path

import pytest

from normlab.book.experiments.sweep import Experiment

BOOK = Path(__file__).resolve().parents[3] / "book"
# one call is enough to see what is called; steps are settings or axes under these names
SHORT = {"steps": 20, "epochs": 1, "every": 1}


def cells_of(*paths):
    cells = [c for path in paths for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def read_chapter(source):
    """What is shown of the experiments, by the words that show it, and the experiments."""
    tree = ast.parse(source)
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("normlab.book.experiments"):
            exec(ast.unparse(node), names)
    shown, elsewhere = {}, set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func) == "show":
            for word in node.args:
                if ast.unparse(word).partition(".")[0] in names:
                    shown[ast.unparse(word)] = eval(ast.unparse(word), names)
        else:
            elsewhere.add(ast.unparse(node.func))
    drawn = [value for value in names.values() if isinstance(value, Experiment)]
    return shown, drawn, elsewhere


def codes_of(thing):
    """The code of a function, or of the methods that a class defines itself."""
    if inspect.isclass(thing):
        return {f.__code__ for f in vars(thing).values() if inspect.isfunction(f)}
    return {inspect.unwrap(thing).__code__}


class Enough(BaseException):
    """Everything was called."""


def run_points(run, wanted, *, others):
    """Run the first point, or those beside it; take from `wanted` what was called."""

    def look(frame, event, argument):
        if event == "call" and frame.f_code in wanted:
            wanted.discard(frame.f_code)
            if not wanted:
                raise Enough

    points, settings = run._resolve({})
    for point in points:
        apart = [axis for axis in run.grid if point[axis] != points[0][axis]]
        if len(apart) != others or "seed" in apart:
            continue
        given = point | settings
        short = {n: v for n, v in SHORT.items() if isinstance(given.get(n), int)}
        sys.setprofile(look)
        try:
            run._function(**given | short)
        except Enough:
            return
        except ValueError:  # these settings are too short for it
            continue
        finally:
            sys.setprofile(None)


def names_any(run, wanted):
    """Whether the file of an experiment names something of this; then it is likely to call it."""
    source = inspect.getsource(sys.modules[run.__module__])
    return any(code.co_qualname.partition(".")[0] in source for code in wanted)


def not_called(shown, drawn, elsewhere):
    """The words that show what neither a cell nor an experiment calls; loops the latter."""
    loops = "normlab.book.experiments.training"
    asked = {
        words: thing
        for words, thing in shown.items()
        if thing.__module__ == loops or words.removesuffix(".forward") not in elsewhere
    }
    left = {code for thing in asked.values() for code in codes_of(thing)}
    for near in (True, False):
        for run, others in itertools.product(drawn, (False, True)):
            if left and names_any(run, left) == near:
                run_points(run, left, others=others)
    return {words for words, thing in asked.items() if codes_of(thing) <= left}


CHAPTERS = {path.stem for path in BOOK.glob("*.ipynb")}


# torch.compile, in what is timed, uses what is deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("chapter", sorted(c for c in CHAPTERS if not c.endswith("_further")))
def test_what_is_shown_is_called(chapter):
    pages = sorted(BOOK.glob(f"{chapter}.ipynb")) + sorted(BOOK.glob(f"{chapter}_further.ipynb"))
    assert not_called(*read_chapter(cells_of(*pages))) == set()


def test_a_loop_that_no_figure_ran_is_named():
    imports = """
from normlab.book.experiments.layer_norm.comparability import comparability, kept_order
from normlab.book.experiments.training import fit
"""
    source = imports + "show(kept_order, fit)\ncomparability.sweep()\nfit(1, 2, 3, 4)"
    assert not_called(*read_chapter(source)) == {"fit"}
