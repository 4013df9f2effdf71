"""COMMAND...: runs it, prints its first line of output, and then the most memory it had as JSON."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, encoding="utf-8", check=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # not less than this process's own, which is small
sys.stdout.write(done.stdout.partition("\n")[0] + "\n")
sys.stdout.write(json.dumps({"import": None, "load": None, "peak": peak}) + "\n")
