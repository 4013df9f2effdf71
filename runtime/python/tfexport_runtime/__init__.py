"""Runs bundles: text in, text out."""

import os

# Else ONNX Runtime 1.32 keeps a database of its use in the home folder. A value that is set already stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
