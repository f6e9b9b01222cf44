"""The widgets of the interface."""
