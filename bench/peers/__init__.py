"""Holdfast beside other job queues, all on the same machine in one run: `python -m bench.peers`."""
