"""Pure functions from a run to rows of styled text; nothing here imports Textual."""
