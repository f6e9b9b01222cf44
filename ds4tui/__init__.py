"""Command line, terminal interface and reports. Sees engine.session and engine.events only."""

__version__ = "0.1.0"
