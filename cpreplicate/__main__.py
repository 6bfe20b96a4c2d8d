"""`python -m cpreplicate` is the console script `cpreplicate`."""

from cpreplicate.cli import main

main()
