"""Everything between a model file and a stream of events. Knows no terminal and no widget."""
