"""The program for spark-submit: docs/deployment.md."""

from cpreplicate.cli import main

main()
