"""Grades a filled-in notebook by the checks that its own cells call."""

from normlab.grading.notebook import NotebookReport, Task, grade_notebook
from normlab.grading.reading import GradingError

__all__ = ["GradingError", "NotebookReport", "Task", "grade_notebook"]
