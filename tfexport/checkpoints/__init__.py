"""Checkpoints of other toolkits as ours: each format is one small module that maps names, facts and tokenizers."""

from tfexport.checkpoints.imported import Imported as Imported
from tfexport.checkpoints.imported import ImportOptions as ImportOptions
from tfexport.checkpoints.registry import open_checkpoint as open_checkpoint
