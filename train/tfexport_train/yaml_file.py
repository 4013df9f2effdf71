"""One YAML file, read safely."""

from __future__ import annotations

from pathlib import Path

from tfexport_train.errors import ConfigError


def read_yaml(path: Path) -> object:
    """Raises ConfigError in one line."""
    import yaml

    try:
        content: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    return content
