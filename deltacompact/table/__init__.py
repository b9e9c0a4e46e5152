"""The three ports through which the engine sees a table. The engine never sees a catalog."""
