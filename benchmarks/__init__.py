"""Speed, memory and size of bundles against other ways to run the same weights. `python -m benchmarks --help`."""
