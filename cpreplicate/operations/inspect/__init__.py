"""`inspect`: what a checkpoint holds, and what changed from one to another."""

from cpreplicate.operations.inspect.comparison import Comparison, compare
from cpreplicate.operations.inspect.references import References, references
from cpreplicate.operations.inspect.summary import (
    SKEWED,
    Inspection,
    OperatorSummary,
    PackSummary,
    inspect,
    summary_of,
)

__all__ = [
    "SKEWED",
    "Comparison",
    "Inspection",
    "OperatorSummary",
    "PackSummary",
    "References",
    "compare",
    "inspect",
    "references",
    "summary_of",
]
