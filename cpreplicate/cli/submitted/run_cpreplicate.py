"""What `spark-submit` runs: `spark-submit … "$(cpreplicate spark-script)" sync …`.

It is alone in its folder, which Python searches first: names in there would hide packages.
"""

from cpreplicate.cli import main

main()
