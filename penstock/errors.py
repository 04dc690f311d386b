"""The root of every error Penstock raises; subclasses live near the code that raises them."""


class PenstockError(Exception):
    """Something the user or operator can act on. The message says what, where, and what to do next."""
