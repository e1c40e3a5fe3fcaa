-- A tenant's own jobs, newest first, whatever others have stored.

CREATE INDEX jobs_tenant ON holdfast.jobs (tenant, state, id) WHERE tenant IS NOT NULL;
