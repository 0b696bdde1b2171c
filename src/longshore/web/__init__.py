"""The service: HTTP API, dashboard and metrics over one depot. Imported by `longshore serve` only."""
