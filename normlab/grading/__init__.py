"""Grades a filled-in notebook by the checks that its own cells call."""

from normlab.grading.notebook import grade_notebook
from normlab.grading.reading import GradingError
from normlab.grading.report import NotebookReport, Task

__all__ = ["GradingError", "NotebookReport", "Task", "grade_notebook"]
