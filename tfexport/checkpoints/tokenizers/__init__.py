"""Tokenizers of other toolkits as ours: the same ids for the same text."""
