"""Every connector states its guarantee, with its own reason."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import penstock.connectors
from penstock.connectors.sink import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Sink
from penstock.connectors.source import Source

for module in pkgutil.walk_packages(penstock.connectors.__path__, "penstock.connectors."):
    importlib.import_module(module.name)


def below(base: type) -> Iterator[type]:
    for child in base.__subclasses__():
        if child.__module__.startswith("penstock.connectors."):
            yield child
            yield from below(child)


@pytest.mark.parametrize("kind", [*below(Source), *below(Sink)], ids=lambda kind: kind.__name__)
def test_every_connector_gives_a_reason_for_its_guarantee(kind: Any) -> None:
    bases = [each for each in kind.__mro__ if each not in (Source, Sink) and issubclass(each, (Source, Sink))]
    said = [each.why for each in bases if "why" in vars(each)]
    # Some connectors choose the reason in their constructor.
    assert said or "self.why" in inspect.getsource(kind)
    assert all(sentence and not sentence.endswith(".") for sentence in said)
    if issubclass(kind, Sink):
        assert kind.guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
