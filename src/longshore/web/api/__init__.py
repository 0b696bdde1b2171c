"""The HTTP API, version 1. Routes are thin: they read the request, call one verb of the ledger or depot, show the result."""
