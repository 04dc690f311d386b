"""The expected output of each example, for the tests in the harness and on Spark."""

import importlib
from datetime import date
from types import ModuleType
from typing import Any

CASES: dict[str, list[Any]] = {
    "consumer_lag": ['{"timestamp":1555516800,"lag":{"consumer0":5,"consumer1":8,"consumer2":3}}'],
    # host-2 is in state X, which does not accept e.
    "state_machine": [("host-2", "X", "e")],
    "least_value": [(2, 21, 21), (2, 30, 21), (2, 7, 7), (4, 1, 1), (5, 4, 4)],
    "count_with_state": [(2, 0), (2, 2), (4, 0), (5, 0)],
    "deduplicate": [("order-1", 30), ("order-2", 12), ("order-3", 7)],
    "compare_yesterday": [
        ("north", date(2024, 3, 1), 100, None),
        ("north", date(2024, 3, 2), 120, 20),
        ("north", date(2024, 3, 3), 90, -30),
        ("south", date(2024, 3, 2), 80, None),
    ],
    "event_pattern": [("card-1", [0.5, 0.2, 0.9], 650.0)],
    # The press is silent after 50, and both machines at the end. Reports up to a minute late are still in time.
    "silent_machine": [("press", 110), ("lathe", 180), ("press", 290)],
    "views_per_minute": [
        ("/", 0, 3),
        ("/buy", 0, 1),
        ("/", 1, 1),
        ("/buy", 1, 1),
        ("/", 2, 1),
        ("/buy", 3, 1),
        ("late", 0, 1),
    ],
    "sales_by_period": [
        ("north", "minute", 0, 30),
        ("south", "minute", 0, 7),
        ("north", "minute", 120, 6),
        ("south", "minute", 3_960, 3),
        ("north", "minute", 7_260, 40),
        ("south", "minute", 90_000, 9),
        ("north", "hour", 0, 36),
        ("south", "hour", 0, 7),
        ("south", "hour", 3_600, 3),
        ("north", "hour", 7_200, 40),
        ("south", "hour", 90_000, 9),
        ("north", "day", 0, 76),
        ("south", "day", 0, 10),
        ("south", "day", 86_400, 9),
    ],
    "sessions": [
        ("ann", 0, ["/", "/search", "/buy"]),
        ("ann", 90, ["/"]),
        ("bob", 5, ["/buy"]),
        ("bob", 50, ["/", "/help"]),
    ],
    # The same payment of 80 is within the limit at time 10 and over it at time 40.
    "payment_limits": [("card-2", 120, 100), ("card-1", 80, 50)],
    # The order of 120 arrives before all rules and is still checked by the rule for its country.
    "rules_first": [("de", 120, 100), ("fr", 95, 80)],
    # o-2 left 61 minutes after its order. A truck that left before the order of o-3 cannot have carried it.
    "shipped_orders": [("o-1", "lamp", "truck 7", 40), ("o-3", "chair", "truck 2", 60)],
}


def load_example(name: str) -> ModuleType:
    return importlib.import_module(name)
