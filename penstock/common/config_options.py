"""Options of a program, under PyFlink's names: a key, a type and a default."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from penstock.absent import explain_absent

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


class ConfigOption(Generic[T]):
    """A key with the type and the default of its value. Create one with ``ConfigOptions.key(...)``."""

    def __init__(self, key: str, kind: type[Any], default: T | None) -> None:
        self.key = key
        self.kind = kind
        self.default = default

    def __repr__(self) -> str:
        return f"ConfigOption({self.key!r}, {self.kind.__name__}, {self.default!r})"


class ConfigOptions:
    """Builds options.

    Example:
        >>> option = ConfigOptions.key("parallelism.default").int_type().default_value(1)
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Return a builder of an option.

        Args:
            key: The key of the setting.
        """
        return ConfigOptions.OptionBuilder(key)

    class OptionBuilder:
        """Determines the type of an option."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Make the value a boolean."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the value a 32-bit integer."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Make the value a 64-bit integer."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the value a 32-bit number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Make the value a 64-bit number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Make the value a text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, str)

    class TypedConfigOptionBuilder(Generic[T]):
        """Determines the default of an option."""

        def __init__(self, key: str, kind: type[T]) -> None:
            self._key = key
            self._kind = kind

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with a default."""
            return ConfigOption(self._key, self._kind, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option without a default."""
            return ConfigOption(self._key, self._kind, None)


explain_absent(__name__)
