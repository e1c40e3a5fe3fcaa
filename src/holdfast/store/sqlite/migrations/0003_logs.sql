-- Events are read by tenant.

CREATE INDEX holdfast_events_tenant ON holdfast_events (tenant, id);
