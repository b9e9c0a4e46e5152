"""The three ports through which the engine sees a table. It never sees a catalog."""
