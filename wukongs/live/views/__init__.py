"""Live views: registered queries without a window, whose answers follow the stored graph."""
