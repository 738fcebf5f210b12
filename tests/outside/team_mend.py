"""What the played innovator does with its tools: mend a file by what evaluator has found, and tell leader."""

import json
import os
import subprocess
import sys


def main(codec: str, path: str) -> int:
    text = subprocess.run(
        [sys.executable, codec, "extract-body", path], capture_output=True, text=True, check=True
    ).stdout
    body = {key: json.loads(value) for key, _, value in (line.partition(": ") for line in text.splitlines())}
    fixes = [str(issue["suggested_fix"]) for issue in body["issues"]]
    with open(body["target"]) as file:
        lines = file.read().splitlines()
    lines += [fix.removeprefix("add: ") for fix in fixes if fix.startswith("add: ")]
    mended = os.path.join(os.getcwd(), os.path.basename(body["target"]))
    with open(mended, "w") as file:
        file.write("\n".join(lines) + "\n")
    delivered = [{"file": os.path.basename(mended), "location": mended}]
    told = {"task_id": body["task_id"], "improvements_made": fixes, "deliverables": delivered}
    send = [sys.executable, codec, "send", "--from", "innovator", "--to", "leader", "--type", "improvement_completed"]
    return subprocess.run([*send, "--reply-to", path, "--once", "improved", "--body", json.dumps(told)]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
