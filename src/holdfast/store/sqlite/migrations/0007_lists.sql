-- A tenant's own jobs, newest first, whatever others have stored.

CREATE INDEX holdfast_jobs_tenant ON holdfast_jobs (tenant, state, id) WHERE tenant IS NOT NULL;
