"""What the engine has of its own for a GPU: memory and graphs, loading, checks of the machine."""
