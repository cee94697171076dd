"""Make what tests of grading share importable without packages of tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.ipynb"


@pytest.fixture
def fresh() -> None:
    """The process is one of its own from the start, as a reader's."""


@pytest.fixture
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no fresh process, which takes seconds, where a test does not ask for one."""
    import warm

    from normlab.grading import running

    if "fresh" not in request.fixturenames and sys.platform == "linux":
        warm.warm_up()
        monkeypatch.setattr(running, "_start", warm.start)


@pytest.fixture
def two_exercises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A book with one page that has exercises with checks."""
    import sheets

    from normlab.grading import notebook

    monkeypatch.setattr(notebook, "PAGES", sheets.PAGES)
