"""Folders as Hugging Face's transformers writes them: config.json, weights and tokenizer files."""

from tfexport.checkpoints.hugging_face.folder_format import FORMAT as FORMAT
