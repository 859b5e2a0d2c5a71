"""How a failure is called, who must act on it, whether it is repeated, and what is kept about it.

A handler raises `Permanent`, `Transient` or `OutcomeUnknown`, or anything else, which a mapping on the task or the app
turns into a kind:

>>> app = Smena(failures={ConnectionRefusedError: "EXTERNAL_UNAVAILABLE"})  # doctest: +SKIP
"""

from smena.failures.classify import Failure, Mapping, check_mapping, classify
from smena.failures.detail import detail_of
from smena.failures.kinds import KINDS, Kind, Side, kind

__all__ = ["KINDS", "Failure", "Kind", "Mapping", "Side", "check_mapping", "classify", "detail_of", "kind"]
