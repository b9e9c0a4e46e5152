"""How the engine sees a table: through three ports, and never through a catalog."""
