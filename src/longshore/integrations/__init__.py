"""Adapters to other people's interfaces. Nothing of the core imports them; each needs an extra of its own."""
