"""The HTTP API, version 1. A route parses the request, calls one ledger or depot method and returns the result."""
