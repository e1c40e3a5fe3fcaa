-- Integrations say which host their token is for: it is sent to no other.

ALTER TABLE holdfast.extraction_integrations
    ADD COLUMN host         text NOT NULL DEFAULT '',
    ADD COLUMN name         text NOT NULL DEFAULT '',
    ADD COLUMN user_name    text,
    ADD COLUMN created_by   text,
    ADD COLUMN token_set_at timestamptz;

-- An installation belongs to one organization.
CREATE UNIQUE INDEX extraction_integrations_installation ON holdfast.extraction_integrations (host, installation_id)
 WHERE installation_id IS NOT NULL;

CREATE INDEX extraction_repositories_integration ON holdfast.extraction_repositories (tenant, integration_id)
 WHERE integration_id IS NOT NULL;

-- null: nobody has looked whether the code can be reached.
ALTER TABLE holdfast.extraction_vulnerabilities ADD COLUMN reachable boolean;
