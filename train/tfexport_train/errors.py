"""Errors of the training package: each message is one line that says what to do."""

from tfexport_runtime.errors import TfexportError


class ConfigError(TfexportError):
    """A configuration that contradicts itself or names something unknown."""


class CheckpointError(TfexportError):
    """A checkpoint that is missing, damaged, unsafe or of another kind."""


class DataError(TfexportError):
    """Training or evaluation text that cannot be used."""
