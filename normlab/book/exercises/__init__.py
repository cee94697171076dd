"""The checks that the book's exercises call, one file a chapter; each returns a sentence."""

from normlab.book.exercises.grading import Question, grader

__all__ = ["Question", "grader"]
