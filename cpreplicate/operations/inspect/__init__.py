"""`inspect`: what a checkpoint holds, and what changed from one to another."""

from cpreplicate.operations.inspect.comparison import Comparison, compare
from cpreplicate.operations.inspect.references import References, references
from cpreplicate.operations.inspect.summary import (
    Inspection,
    OperatorSummary,
    PackSummary,
    inspect,
)

__all__ = [
    "Comparison",
    "Inspection",
    "OperatorSummary",
    "PackSummary",
    "References",
    "compare",
    "inspect",
    "references",
]
