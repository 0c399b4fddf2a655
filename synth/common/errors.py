"""The error that ends a synthesis command."""

__all__ = ["ToolError"]


class ToolError(Exception):
    """A tool is missing, refused its input, or printed something that is not understood."""
