"""The one error of the embedded plane."""


class PlaneError(Exception):
    """The plane cannot do what was asked; the message is one clear line that ends with the fix."""
