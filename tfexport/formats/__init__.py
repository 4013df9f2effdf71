"""What a bundle's graphs can be written as: one module a format, listed in registry.py."""
