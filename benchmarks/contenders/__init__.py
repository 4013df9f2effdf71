"""One file for each way to run a model. Each runs in a process of its own, see `benchmarks.worker`."""
