"""What docs/mq says: the shell client as it stands there, and the Python lines."""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.mailbox.boxes import Running

DOCS = Path(__file__).parents[2] / "docs" / "mq"


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", (DOCS / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_shell_client_is_ten_lines_and_works(manager: Running, home: Path) -> None:
    script = block("sh")
    assert len([line for line in script.splitlines() if line and not line.startswith("#")]) <= 10
    (home / "mq.sh").write_text(script)

    def call(command: str, payload: object) -> dict[str, object]:
        ended = subprocess.run(
            ["sh", str(home / "mq.sh"), command, json.dumps(payload)],
            env={**os.environ, "YIRANGMQ_ROOT": str(manager.root)},
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        answer: dict[str, object] = json.loads(ended.stdout)
        return answer

    sent = call("publish", {"queue": "telemetry", "message": {"temp": 36.5}})
    assert sent["ok"] is True
    got = call("consume", {"queue": "telemetry", "consumerId": "shell"})
    data = got["data"]
    assert isinstance(data, dict)
    assert json.loads(data["message"]["payload"]) == {"temp": 36.5}
    assert call("ack", {"messageKey": data["message"]["messageKey"], "consumerId": "shell"})["ok"] is True
    assert call("nonsense", {})["ok"] is False


def test_the_python_lines_work(manager: Running, capsys: object) -> None:
    lines = block("python").replace("Client()", f"Client({str(manager.root)!r})")
    exec(compile(lines, "docs/mq/README.md", "exec"), {})
    with manager.client() as mq:
        assert mq.status("telemetry")["metrics"]["ready"] == 0


def test_both_languages_have_the_same_parts() -> None:
    for page in ("operations", "troubleshooting"):
        english, korean = ((DOCS / f"{page}{end}").read_text() for end in (".md", ".ko.md"))
        for what in (r"^## ", r"^\| ", r"^```", r"^- "):
            counts = [len(re.findall(what, text, re.MULTILINE)) for text in (english, korean)]
            assert counts[0] == counts[1], (page, what, counts)
