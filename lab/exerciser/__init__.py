"""Random calls on one file, compared with a model."""
