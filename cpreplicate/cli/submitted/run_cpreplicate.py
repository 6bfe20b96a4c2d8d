"""What `spark-submit` runs: `spark-submit … "$(cpreplicate spark-script)" sync …`.

It is alone in its folder, which Python searches first: names in there would hide packages. It ends
with `spark-submit`, whose end would leave it alone.
"""

import os
import signal

from cpreplicate.cli import main
from cpreplicate.operations.jobs.workers.parent import end_with

end_with(os.getppid(), signal.SIGTERM)
main()
