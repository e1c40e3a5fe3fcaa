"""From the SIGKILL of a worker to the next run of its job, with default settings, beside two other queues."""
