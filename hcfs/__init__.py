"""A cache filesystem for LLM serving on a raw NVMe device or an image file."""

__version__ = "0.1.0"
