"""A language model on the standard library: the text, the checkpoints, and a run that is killed."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from normlab.book.experiments import checkpoints
from normlab.book.experiments.checkpoints import Checkpoint
from normlab.book.experiments.data import library
from normlab.book.experiments.data.library import PINNED, Library, load_library
from normlab.book.experiments.networks.decoder import take_largest_logit
from normlab.book.experiments.networks.transformer import MeasuredAttention
from normlab.book.experiments.today import larger_language_model as larger

ROOT = Path(__file__).resolve().parents[3]
WORDS = {"layers": 1, "width": 16, "heads": 2, "length": 8, "batch_size": 2, "steps": 12}
WORDS |= {"warmup": 3, "points": 3, "held_out": 2, "checkpoint_minutes": 1e-9}
SMALL = {**WORDS, "seed": 0, "lr": 1e-2, "group": "qk_norm", "text_sha256": ""}


@pytest.fixture
def short_text(monkeypatch):
    tokens = torch.randint(256, (400,), generator=torch.Generator().manual_seed(0))
    text = Library(tokens[:300], tokens[300:], "short")
    monkeypatch.setattr(larger, "load_library", lambda sha256, folder: text)
    return text


def measured(**changes):
    """What one run measures, without what depends on the machine."""
    found = larger.larger_language_model(**{**SMALL, **changes})
    assert found.pop("core_minutes") > 0
    assert found.pop("processor")
    return found


def make_training(text, **changes):
    arguments = larger.larger_language_model.settings | SMALL | changes
    return larger.Training(SimpleNamespace(**arguments), text)


# --- the text


@pytest.fixture
def folder(tmp_path):
    for name, content in {
        "b.py": b"second\r\n",
        "a.py": b"first\n",
        "c/d.py": b"third\n",
        "c/e.txt": b"no code",
        "c/test/f.py": b"a test",
        "site-packages/g.py": b"installed",
        "_sysconfigdata_here.py": b"of the build",
    }.items():
        path = tmp_path / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "lib"


def test_files_follow_each_other_by_name(folder):
    found = load_library(folder=folder)
    assert bytes(found.train.tolist()) == b"first\nsecond\n"
    assert bytes(found.held_out.tolist()) == b"third\n"
    assert found.sha256 == hashlib.sha256(b"first\nsecond\nthird\n").hexdigest()
    assert load_library(found.sha256, folder=folder).sha256 == found.sha256


def test_a_twentieth_is_held_out(folder):
    (folder / "a.py").write_bytes(b"first\n" * 20)
    (folder / "d.py").write_bytes(b"!")  # less than a twentieth, so the file before goes, too
    assert bytes(load_library(folder=folder).held_out.tolist()) == b"third\n!"


def test_another_text_is_refused_and_described(folder):
    right = load_library(folder=folder).sha256
    (folder / "b.py").write_bytes(b"secand\n")
    other = load_library(folder=folder).sha256
    words = f"Python {platform.python_version()} has 3 files, 19 bytes and the hash {other}; "
    with pytest.raises(ValueError, match=f"text_sha256: .*{words}expected {right}") as error:
        load_library(right, folder=folder)
    assert f"Python {PINNED.python}: {PINNED.files} files" in str(error.value)


def test_a_folder_without_code_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder: .*expected one with Python files"):
        load_library(folder=tmp_path)


def test_the_pinned_text_is_that_of_its_python():
    """Of this version the text is the expected one; of another it is refused by name."""
    whole = load_library()
    if whole.sha256 == PINNED.sha256:
        assert len(whole.train) + len(whole.held_out) == PINNED.characters
        assert library.HELD_OUT <= len(whole.held_out) / PINNED.characters < 0.06
    else:
        with pytest.raises(ValueError, match=f"text_sha256.*Python {PINNED.python}"):
            load_library(PINNED.sha256)


# --- the training


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_to_repeat_a_pattern(monkeypatch, precision):
    pattern = torch.arange(400) % 4
    monkeypatch.setattr(
        larger, "load_library", lambda sha256, folder: Library(pattern, pattern[:40], "")
    )
    for group in ("none", "qk_norm"):
        found = measured(precision=precision, steps=60, group=group)
        assert found["curve"][0] > 2 > 1 > found["loss"] == found["held_out"][-1]
        assert len(found["curve"]) == len(found["held_out"]) == len(found["largest_logits"]) == 3
        assert found["tokens"] == 60 * 2 * 8


def test_the_rate_rises_and_falls(short_text):
    training = make_training(short_text, group="none")
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 3)
    training.run()
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)


def test_both_groups_start_and_read_alike(short_text):
    none, qk = (make_training(short_text, group=g, seed=1) for g in ("none", "qk_norm"))
    other = make_training(short_text, group="none", seed=2)
    assert torch.equal(none.model.head.weight, qk.model.head.weight)
    assert torch.equal(none.held_out[0], qk.held_out[0])
    assert torch.equal(none.held_out[0], other.held_out[0])
    assert not torch.equal(none.model.head.weight, other.model.head.weight)
    batch = next(none.batches)[0]
    assert torch.equal(batch, next(qk.batches)[0])
    assert not torch.equal(batch, next(other.batches)[0])
    sizes = [sum(p.numel() for p in t.model.parameters()) for t in (none, qk)]
    assert sizes[1] - sizes[0] == 2 * 8  # a weight for queries, one for keys


def test_logits_are_those_of_training_part_by_part(short_text):
    training = make_training(short_text, group="none")
    seen = []
    attention = next(m for m in training.model.modules() if isinstance(m, MeasuredAttention))
    attention.register_forward_hook(lambda m, *_: seen.append(m.largest_logit))
    training.run()
    del seen[4::5]  # the held-out windows, behind every four updates
    expected = [max(seen[i : i + 4]) for i in (0, 4, 8)]
    assert training.progress["largest_logits"] == pytest.approx(expected, rel=1e-3)
    assert len(set(expected)) == 3
    assert take_largest_logit(training.model) == 0


def test_a_loss_that_is_not_finite_ends_the_run(short_text):
    found = measured(lr=1e38)
    assert found["loss"] is None
    assert 0 < found["tokens"] < 12 * 2 * 8


def test_factors_are_rounded_and_weights_are_not():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 20, bias=False))
    x = torch.randn(7, 40, generator=generator)
    before = model(x)
    parameters = list(model.parameters())
    larger.multiply_in_bfloat16_(model)
    after = model(x)
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert after.dtype == torch.float32
    assert 1e-4 < (after - before).abs().max() / before.abs().max() < 2e-2
    after.backward(torch.randn(7, 20, generator=generator))
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in parameters)


# --- killed and continued


class Killed(Exception):
    """In the place of the signal."""


def run_and_die(step, **changes):
    """Let the run end when the checkpoint of this step is on the disk."""
    save = Checkpoint.save

    def save_and_die(self, progress):
        save(self, progress)
        if progress["step"] == step:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_die)
        with pytest.raises(Killed):
            measured(**changes)


@pytest.mark.parametrize("step", [1, 4, 7, 12])
def test_a_killed_run_ends_as_an_uninterrupted_one(short_text, tmp_path, capsys, step):
    alone = measured()
    run_and_die(step, checkpoints=str(tmp_path))
    assert measured(checkpoints=str(tmp_path)) == alone
    assert f"qk_norm-0.01-0.pt: continues at step {step}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lost", ["model", "optimizer", "schedule", "progress"])
def test_every_part_of_the_state_matters(short_text, tmp_path, lost):
    """A checkpoint that forgets one of them ends elsewhere."""
    run_and_die(6, checkpoints=str(tmp_path))
    fresh = make_training(short_text)
    (path,) = tmp_path.iterdir()
    state = torch.load(path, weights_only=True)
    if lost == "progress":
        state["progress"]["losses"] = []
    else:
        state["parts"][lost] = getattr(fresh, lost).state_dict()
    torch.save(state, path)
    assert measured(checkpoints=str(tmp_path)) != measured()


def test_a_torn_file_never_takes_the_place_of_a_whole_one(short_text, tmp_path, monkeypatch):
    save = torch.save

    def tear(state, path):
        if state["progress"]["step"] < 5:
            return save(state, path)
        Path(path).write_bytes(b"half of")
        raise Killed

    monkeypatch.setattr(checkpoints.torch, "save", tear)
    with pytest.raises(Killed):
        measured(checkpoints=str(tmp_path))
    saved = torch.load(tmp_path / "qk_norm-0.01-0.pt", weights_only=True)
    assert saved["progress"]["step"] == 4
    monkeypatch.undo()


@pytest.mark.parametrize("changes", [{"steps": 15}, {"width": 8}, {"precision": "float32"}])
def test_a_checkpoint_of_other_settings_is_refused(short_text, tmp_path, changes):
    run_and_die(1, checkpoints=str(tmp_path))
    (name,) = changes
    with pytest.raises(
        ValueError, match=rf"checkpoints: .*-0.pt is of .* another {name}; .*folder"
    ):
        measured(checkpoints=str(tmp_path), **changes)


def test_the_next_checkpoint_waits_for_its_minutes(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "run.pt", {}, settings={}, minutes=10)
    written = []
    for step, seconds in enumerate((599, 2, 598, 2), start=1):
        now[0] += seconds
        checkpoint.save_if_due({"step": step})
        saved = checkpoint.load({"step": 0})["step"]
        written.append(saved)
    assert written == [0, 2, 2, 4]


def test_without_a_folder_nothing_is_written(short_text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    measured()
    assert not list(tmp_path.iterdir())


def test_the_text_may_lie_in_another_folder(folder, tmp_path):
    (folder / "a.py").write_bytes(bytes(range(256)) * 2)
    assert measured(library=str(folder), steps=3)["tokens"] == 3 * 2 * 8
    with pytest.raises(ValueError, match="folder: .*expected one with Python files"):
        measured(library=str(tmp_path / "missing"), steps=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(ValueError, match="device: got 'cuda'.*no GPU"):
        measured(device="cuda")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"heads": 5}, "heads"),
        ({"points": 7}, "points.*divisor of steps"),
        ({"warmup": 101}, "warmup.*steps"),
    ],
)
def test_settings_are_checked(changes, words):
    with pytest.raises(ValueError, match=words):
        larger.larger_language_model.sweep(**changes)
