"""The doctor: what usually goes wrong around the norms of a model."""

from normlab.inspection.examination import doctor
from normlab.inspection.report import Examination, Finding, Norm

__all__ = ["Examination", "Finding", "Norm", "doctor"]
