-- What is intended and not done is little beside all that was done: whoever asks for it must not read everything. `gc` and
-- `reconcile` ask for each blob whether somebody is about to publish it; the sweep asks for what nobody will finish.
CREATE INDEX effects_open ON effects (tenant_id, project_id, kind, fingerprint) WHERE state = 'intended';
