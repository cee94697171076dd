"""The doctor: what usually goes wrong around the norms of a model."""

from normlab.checks.inspection.examination import doctor
from normlab.checks.inspection.report import Examination, Finding, Norm

__all__ = ["Examination", "Finding", "Norm", "doctor"]
