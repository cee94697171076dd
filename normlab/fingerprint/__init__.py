"""Black-box identification: which norm is this, with which conventions?"""

from normlab.fingerprint.identification import identify
from normlab.fingerprint.report import Fingerprint

__all__ = ["Fingerprint", "identify"]
