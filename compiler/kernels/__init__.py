"""The jobs of each layer: how it is tiled and which commands it becomes."""
