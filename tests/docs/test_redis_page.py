"""The programs of docs/connect/redis.md run against a real server, and give what they assert."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs/connect/redis.md").read_text()


def test_its_programs_give_what_they_say(redis_server: Any) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {"__name__": "redis_page"}
    for block in blocks:
        assert "assert" in block
        exec(block.replace("redis://localhost:6379/0", redis_server.url), names)
