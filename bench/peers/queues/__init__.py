"""One module for each queue that is measured. They run in the queue's own environment: the standard library and the queue only.

Each has `VERSION`, `SETTINGS` and `RESCUE` (what was moved from its defaults, for the report), `DRAIN_JOBS`, `UNFINISHED` (SQL
that counts what is left, or None where there is no SQL), `COPY` (how a job in its table is multiplied; None: backlogs are
enqueued), and a class `Queue` with `open`, `setup`, `enqueue_one`, `enqueue_many` (only if the queue has such a call) and
`work`, which runs until it is killed; `gentle` asks for at most ten jobs at a time and for the quickest sane rescue of the jobs
of a dead worker.
"""
