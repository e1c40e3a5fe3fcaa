-- Integrations say which host their token is for: it is sent to no other.

ALTER TABLE holdfast_extraction_integrations ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE holdfast_extraction_integrations ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE holdfast_extraction_integrations ADD COLUMN user_name TEXT;
ALTER TABLE holdfast_extraction_integrations ADD COLUMN created_by TEXT;
ALTER TABLE holdfast_extraction_integrations ADD COLUMN token_set_at REAL;

-- An installation belongs to one organization.
CREATE UNIQUE INDEX holdfast_extraction_integrations_installation
    ON holdfast_extraction_integrations (host, installation_id) WHERE installation_id IS NOT NULL;

CREATE INDEX holdfast_extraction_repositories_integration
    ON holdfast_extraction_repositories (tenant, integration_id) WHERE integration_id IS NOT NULL;

-- null: nobody has looked whether the code can be reached.
ALTER TABLE holdfast_extraction_vulnerabilities ADD COLUMN reachable INTEGER;
