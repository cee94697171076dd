"""Black-box identification: which norm is this, with which conventions?"""

from normlab.checks.fingerprint.identification import identify
from normlab.checks.fingerprint.report import Fingerprint

__all__ = ["Fingerprint", "identify"]
