"""Configuration: the only reader of the environment and of `longshore.toml`."""

from longshore.config.load import CONFIG_FILE, default_depot, load_settings, shown
from longshore.domain.settings import Secret, Settings

__all__ = ["CONFIG_FILE", "Secret", "Settings", "default_depot", "load_settings", "shown"]
