"""Data and artefacts by URL: channels in, models and outputs out, checkpoints both ways."""
