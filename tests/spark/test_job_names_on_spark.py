"""Job names on Spark: each job resumes only its own checkpoints, whatever characters its name has."""

from pathlib import Path
from typing import Any

import pytest
from programs import Count

from penstock.common import RestartStrategies
from penstock.datastream import KeyedProcessFunction
from penstock.driver.epoch_errors import UserFunctionFailed

pytestmark = pytest.mark.spark


class FailsAtTheFifth(Count):
    """Counts, and fails at the fifth record until the file exists."""

    def __init__(self, repaired: Path) -> None:
        self.repaired = repaired

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if value == 4 and not self.repaired.exists():
            raise ValueError("not repaired yet")
        yield from super().process_element(value, ctx)


@pytest.mark.parametrize(
    "names",
    [["orders/eu", "orders eu"], ["заказы", "платежи"], ["x" * 300, "x" * 299 + "y"]],
    ids=["separators", "non-Latin letters", "300 characters"],
)
def test_a_job_resumes_only_its_own_checkpoints(make_env: Any, tmp_path: Path, names: list[str]) -> None:
    def run(name: str) -> list[int]:
        env = make_env(parallelism=1, records=2, checkpoints=True)
        env.set_restart_strategy(RestartStrategies.no_restart())
        numbers = env.from_collection(range(6)).uid("numbers").key_by(lambda _: name)
        counts = []
        with numbers.process(FailsAtTheFifth(tmp_path / "repaired")).uid("count").execute_and_collect(name) as results:
            for key, n in results:
                assert key == name
                counts.append(n)
        return counts

    for name in names:
        with pytest.raises(UserFunctionFailed, match="not repaired yet"):
            run(name)
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(names)
    (tmp_path / "repaired").touch()
    for name in names:
        assert run(name) == [5, 6], "the job continues after its own two epochs"
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(names)
