SELECT value FROM _meta WHERE key = 'schema_version'
