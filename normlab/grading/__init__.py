"""Grades a filled-in notebook by the checks that its own cells call."""

from normlab.grading.notebook import GradingError, NotebookReport, Task, grade_notebook

__all__ = ["GradingError", "NotebookReport", "Task", "grade_notebook"]
