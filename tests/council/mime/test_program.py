"""The codec as a program of its own, copied alone into an empty tree: words, exit codes, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.council.mime.conftest import CODEC, Program

SENT = ("--from", "user", "--to", "leader", "--type", "user_goal")
RAW = b"From: a\r\nTo: b\r\nX-IGNITE-Status: queued\r\n\r\nk: \xff\r\n"


def test_what_is_built_is_read(program: Program) -> None:
    words = ["--priority", "high", "--thread-id", "T", "--in-reply-to", "<a@b>", "--repo", "o/r", "--issue", "42"]
    words += ["--status", "queued", "--cc", "architect", "--cc=evaluator", "--to", "strategist", "--body", "目標: x"]
    assert program.ok("build", *SENT, *words, "-o", "a/b/c.mime") == b""
    assert (program.tree / "a/b/c.mime").stat().st_mode & 0o777 == 0o600
    shown = program.ok("parse", "a/b/c.mime").decode()
    found = json.loads(shown)
    assert shown == json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    assert {name: found[name] for name in ("from", "to", "cc", "type", "priority", "thread_id", "in_reply_to")} == {
        "from": "user",
        "to": ["leader", "strategist"],
        "cc": ["architect", "evaluator"],
        "type": "user_goal",
        "priority": "high",
        "thread_id": "T",
        "in_reply_to": "<a@b>",
    }
    assert (found["repository"], found["issue"], found["status"], found["body"]) == ("o/r", "42", "queued", "目標: x")
    assert os.listdir(program.tree / "a/b") == ["c.mime"]


def test_json_escapes_what_json_must(program: Program) -> None:
    body = "".join(map(chr, range(1, 0x2030))) + "\U0001f600"
    program.put(b"From: a\n\n" + body.encode())
    shown = program.ok("parse", "message.mime").decode()
    assert json.loads(shown)["body"] == body
    assert shown == json.dumps(json.loads(shown), indent=2, ensure_ascii=False) + "\n"


# words of `build` · what stands in the message
CALLS: list[tuple[list[str | bytes], bytes]] = [
    (["--body", "- x"], b"\n\n- x"),
    (["--body", "--from"], b"\n\n--from"),
    (["--body=a=b"], b"\n\na=b"),
    (["--body", ""], b"8bit\n\n"),
    (["--priority", ""], b"\nX-IGNITE-Priority: normal\n"),
    (["--priority", "odd"], b"\nX-IGNITE-Priority: odd\n"),
    (["--to", "a", "b", "--cc", "c", "d"], b"\nTo: a, b, leader\nCc: c, d\n"),
    (["--repo", b"\xff\xfe"], "\nX-IGNITE-Repository: ��\n".encode()),
    (["--body", b"a\xff"], "\n\na�".encode()),
    (["--body", "lost", "--body-file", "-"], b"\n\nfrom stdin \xff\n"),
]


@pytest.mark.parametrize(("words", "part"), CALLS)
@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_a_call_of_build(words: list[str | bytes], part: bytes, locale: str, program: Program) -> None:
    variables = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"} if locale == "C" else {}
    assert part in program.ok("build", *words, *SENT, stdin=b"from stdin \xff\n", **variables)


def test_output_replaces_a_file_and_follows_a_link(program: Program) -> None:
    old = program.put(b"old", "old.mime")
    (program.tree / "link.mime").symlink_to("old.mime")
    for target in ("old.mime", "link.mime"):
        program.ok("build", *SENT, f"-o{target}")
        assert old.read_bytes().startswith(b"MIME-Version")
        old.write_bytes(b"old")
    assert (program.tree / "link.mime").is_symlink()


def test_output_is_written_into_what_is_no_regular_file(program: Program) -> None:
    assert program.ok("build", *SENT, "--output=/dev/stdout").startswith(b"MIME-Version")
    fifo = program.tree / "fifo"
    os.mkfifo(fifo)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(fifo.read_bytes()))
    reader.start()
    program.ok("build", *SENT, "-o", "fifo")
    reader.join(60)
    assert heard[0].startswith(b"MIME-Version")
    assert fifo.is_fifo()


# words · exit code · what the error says
WRONG: list[tuple[list[str], int, str]] = [
    ([], 2, "which command?"),
    (["bild"], 2, "no command 'bild'"),
    (["build"], 2, "--from is missing"),
    (["build", "--from", "a", "--to", "", "--type", "t"], 2, "--to is missing"),
    (["build", *SENT, "--colour", "x"], 2, "no option '--colour'"),
    (["build", *SENT, "--repo", "r", "word"], 2, "build takes options alone"),
    (["build", *SENT, "--body"], 2, "--body needs a value"),
    (["build", *SENT, "-o"], 2, "-o needs a value"),
    (["build", *SENT, "--repo", "a\nb", "-o", "x.mime"], 2, "control character"),
    (["build", *SENT, "--body-file", "nowhere"], 1, "nowhere: No such file"),
    (["build", *SENT, "-o", "."], 1, "Is a directory"),
    (["parse"], 2, "parse takes FILE"),
    (["parse", "nowhere"], 1, "nowhere: No such file"),
    (["parse", "."], 1, "Is a directory"),
    (["parse", "a", "b"], 2, "parse takes FILE"),
    (["extract-body", "nowhere"], 1, "nowhere: No such file"),
    (["update-status", "message.mime"], 2, "update-status takes FILE STATUS"),
    (["update-status", "nowhere", "x"], 1, "nowhere: No such file"),
    (["update-status", "message.mime", "x", "--extra", "X-A"], 2, "Header-Name=value"),
    (["update-status", "message.mime", "a\nb"], 2, "control character"),
    (["update-header", "message.mime", "A B", "x"], 2, "no name of a header"),
    (["update-header", "/dev/null", "A", "x"], 1, "is no regular file"),
    (["update-header", ".", "A", "x"], 1, "is no regular file"),
    (["remove-header", "nowhere", "A"], 1, "nowhere: No such file"),
    (["validate"], 2, "validate takes FILE..."),
]


def test_wrong_calls_are_told_by_code_and_one_line(program: Program) -> None:
    path = program.put(RAW)
    for words, code, sentence in WRONG:
        said = program(*words)
        last = said.err.splitlines()[-1:] or [""]
        assert (said.code, sentence in last[0]) == (code, True), (words, said)
        assert ("usage:" in said.err) == (code == 2 and "control" not in sentence and "no name" not in sentence), words
        assert len(said.err.splitlines()) == 1 or code != 1, words
    assert path.read_bytes() == RAW
    assert sorted(os.listdir(program.tree)) == ["message.mime", "scripts"]


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["build", "-h"], ["parse", "--help"]])
def test_help(words: list[str], program: Program) -> None:
    assert program.ok(*words).startswith(b"usage: ")


# words with {} for the file · what the file is afterwards
EDITS: list[tuple[list[str], bytes]] = [
    (["update-status", "{}", "delivered"], RAW.replace(b"queued", b"delivered")),
    (["update-status", "--processed-at", "-t", "{}", "a=b"], b"a=b\r\nX-IGNITE-Processed-At: -t"),
    (["update-status", "--extra", "X-A=1=2", "{}", "ok", "--extra=X-B="], b"ok\r\nX-A: 1=2\r\nX-B: "),
    (["update-status", "{}", "ok", "--extra", "X-A=1", "X-B=2"], b"ok\r\nX-A: 1\r\nX-B: 2"),
    (["update-header", "{}", "X-IGNITE-Retry-Count", "3"], b"queued\r\nX-IGNITE-Retry-Count: 3"),
    (["update-header", "{}", "X-N", "-5"], b"queued\r\nX-N: -5"),
    (["remove-header", "{}", "X-IGNITE-Error-Reason"], RAW),
    (["remove-header", "{}", "x-ignite-status"], RAW.replace(b"X-IGNITE-Status: queued\r\n", b"")),
]


@pytest.mark.parametrize(("words", "wanted"), EDITS)
def test_an_edit_is_silent_and_keeps_mode_and_body(words: list[str], wanted: bytes, program: Program) -> None:
    path = program.put(RAW)
    path.chmod(0o640)
    assert program.ok(*(word.format("message.mime") for word in words)) == b""
    found = path.read_bytes()
    assert found == (wanted if wanted.startswith(b"From") else RAW.replace(b"queued", wanted))
    assert path.stat().st_mode & 0o777 == 0o640
    assert program.ok("extract-body", "message.mime") == b"k: \xff\r\n"
    assert sorted(os.listdir(program.tree)) == ["message.mime", "scripts"]


VANISHES = """
import os, sys
sys.path.insert(0, "scripts/lib")
import ignite_mime
write = ignite_mime._draft
def draft_and_lose(folder, data, mode=0o600):
    made = write(folder, data, mode)
    os.unlink("message.mime")
    return made
ignite_mime._draft = draft_and_lose
sys.exit(ignite_mime.main(["update-status", "message.mime", "delivered"]))
"""


def test_an_edit_never_brings_back_a_file_that_vanished(program: Program) -> None:
    program.put(RAW)
    done = subprocess.run([sys.executable, "-c", VANISHES], cwd=program.tree, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("message.mime: No such file or directory\n")
    assert len(done.stderr.splitlines()) == 1
    assert [name for name in os.listdir(program.tree) if name != "scripts"] == []


def test_edits_at_the_same_time_are_all_kept(program: Program) -> None:
    path = program.put(RAW)
    edit = "import sys; sys.path.insert(0, 'scripts/lib'); import ignite_mime\n"
    edit += (
        "for n in range(8): assert ignite_mime.main(['update-header', 'message.mime', f'{sys.argv[1]}-{n}', 'x']) == 0"
    )
    editors = [subprocess.Popen([sys.executable, "-c", edit, name], cwd=program.tree) for name in ("A", "B")]
    assert [editor.wait(60) for editor in editors] == [0, 0]
    assert path.read_bytes().count(b": x\r\n") == 16


def test_a_link_stays_a_link(program: Program) -> None:
    path = program.put(RAW)
    link = program.tree / "link.mime"
    link.symlink_to("message.mime")
    program.ok("update-status", "link.mime", "done")
    assert link.is_symlink()
    assert b"Status: done" in path.read_bytes()


def test_output_that_nobody_reads_is_no_traceback(program: Program) -> None:
    program.put(b"From: a\n\n" + b"x" * 1_000_000)
    done = subprocess.run(
        f"{sys.executable} {program.file} parse message.mime | head -c 1 >/dev/null",
        cwd=program.tree,
        shell=True,
        capture_output=True,
    )
    assert done.stderr == b""


GOOD = (
    b"MIME-Version: 1.0\nMessage-ID: <1.2.a@ignite.local>\nFrom: user\nTo: leader\n"
    b"Date: Mon, 10 Feb 2026 12:00:00 +0900\nX-IGNITE-Type: user_goal\nX-IGNITE-Priority: high\n"
    b"Content-Type: text/x-yaml; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\ngoal: x\n"
)
# what is replaced in a good message · by what · the fault
FAULTS: list[tuple[bytes, bytes, str]] = [
    (GOOD, b"", "MIME-Version is missing"),
    (b"MIME-Version: 1.0", b"MIME-Version: 2", "MIME-Version is '2'"),
    (b"From: user\n", b"", "From is missing"),
    (b"From: user", b"From: eve", "From names 'eve'; known are user, leader"),
    (b"To: leader", b"To: leader, nobody", "To names 'nobody'"),
    (b"To: leader", b"To: leader\nCc: ignitian_x", "Cc names 'ignitian_x'"),
    (b"To: leader", b"To: leader\nto: user", "to stands twice"),
    (b"To: leader", b"To: leader\nno header", "'no header' is no header"),
    (b"To: leader", b"To: leader\nX-A: a\x0b", "X-A has a control character"),
    (b"Priority: high", b"Priority: urgent", "X-IGNITE-Priority 'urgent' is none of"),
    (b"<1.2.a@ignite.local>", b"1", "Message-ID '1' is not"),
    (b"Mon, 10 Feb 2026 12:00:00 +0900", b"yesterday", "Date 'yesterday' is no date"),
    (b"8bit", b"base64", "Content-Transfer-Encoding is 'base64', not '8bit'"),
    (b"utf-8", b"latin-1", "Content-Type is"),
    (b"goal: x", b"goal: \xff", "is no UTF-8"),
    (b"goal: x", b"- goal", "the body is no YAML mapping"),
    (b"goal: x", b"just words", "the body is no YAML mapping"),
    (b"goal: x", b"", "the body is no YAML mapping"),
    (b"goal: x", b"context: x", "the body of a user_goal needs goal"),
    (b"goal: x", b"type: a\npayload:\n  context: x", "the body of a user_goal needs goal"),
    (b"user_goal", b"evaluation_result", "needs overall_status or verdict"),
]
FINE: list[tuple[bytes, bytes, str]] = [
    (b"", b"", ""),
    (b"\n", b"\r\n", ""),
    (b"goal: x", b"# why\n---\ngoal:\n- x\n", ""),
    (b"goal: x", b"{goal: x}", ""),
    (b"goal: x", b"type: a\nfrom: b\npayload:\n    goal: x\npriority: medium", ""),
    (b"To: leader", b"To: ignitian-3, ignitian_12", "'ignitian-3' is not sent a user_goal"),
    (b"From: user", b"From: jira_watcher", "'jira_watcher' does not send a user_goal, but user"),
    (b"user_goal", b"of_tomorrow", "nobody knows the type 'of_tomorrow'"),
    (b"user_goal", b"help_request", ""),
]


def test_faults_are_named_one_line_each(program: Program) -> None:
    for number, (old, new, _) in enumerate(FAULTS):
        program.put(GOOD.replace(old, new), f"{number}.mime")
    said = program("validate", *(f"{number}.mime" for number in range(len(FAULTS))))
    assert said.code == 1
    lines = said.out.decode().splitlines()
    for number, (_, _, fault) in enumerate(FAULTS):
        found = [line for line in lines if line.startswith(f"{number}.mime: ")]
        assert any(fault in line for line in found), (fault, found)
        assert len(found) == 1 or number in (0, len(FAULTS) - 1), found
    assert len([line for line in lines if line.startswith("0.mime: ")]) == 10, "nine headers and a body are missing"


def test_what_is_odd_is_a_warning_alone(program: Program) -> None:
    for number, (old, new, _) in enumerate(FINE):
        program.put(GOOD.replace(old, new) if old else GOOD, f"{number}.mime")
    said = program("validate", *(f"{number}.mime" for number in range(len(FINE))))
    assert (said.code, said.out) == (0, b"")
    for number, (_, _, warning) in enumerate(FINE):
        found = [line for line in said.err.splitlines() if line.startswith(f"ignite_mime: {number}.mime: warning: ")]
        assert bool(found) == bool(warning)
        assert warning in "".join(found)


def test_a_file_that_cannot_be_read_is_no_valid_one(program: Program) -> None:
    program.put(GOOD, "good.mime")
    assert program("validate", "good.mime", "nowhere").code == 1


def test_send_puts_one_file_into_each_folder(program: Program) -> None:
    queue = program.tree / "workspace/queue"
    queue.mkdir(parents=True)
    shown = program.ok("send", "--from", "user", "--to", "leader", "--type", "user_goal", "--body", "goal: x")
    (sent,) = shown.decode().splitlines()
    assert Path(sent).parent == queue / "leader"
    name = Path(sent).name
    assert name.startswith("user_goal_")
    assert name.endswith(".mime")
    assert len(name.removeprefix("user_goal_").removesuffix(".mime")) == 16
    reply = ("--from", "strategist", "--to", "leader,ignitian-2", "--cc", "user", "leader", "--type", "help_request")
    program.ok("update-header", sent, "X-IGNITE-Thread-ID", "T9")
    shown = program.ok("send", *reply, "--body", "why: x", "--reply-to", sent, "--queue", str(queue))
    paths = [Path(line) for line in shown.decode().splitlines()]
    assert [path.parent.name for path in paths] == ["leader", "ignitian_2", "user"]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert len({path.read_bytes() for path in paths}) == 1
    found = json.loads(program.ok("parse", paths[0]))
    asked = json.loads(program.ok("parse", sent))
    assert (found["in_reply_to"], found["thread_id"]) == (asked["message_id"], "T9")
    assert [name for folder in queue.iterdir() for name in os.listdir(folder) if not name.endswith(".mime")] == []


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("--to", "nobody", "--type", "user_goal", "--body", "goal: x"),
            1,
            "To names 'nobody'; known are user, leader",
        ),
        (("--to", "../leader", "--type", "user_goal", "--body", "goal: x"), 1, "To names '../leader'"),
        (("--to", "leader", "--type", "../x", "--body", "goal: x"), 1, "'../x' is no type of message"),
        (("--to", "leader", "--type", "user_goal", "--body", "x: x"), 1, "the body of a user_goal needs goal"),
        (("--to", "leader", "--type", "user_goal", "--body", "goal: x", "--repo", "\n"), 2, "control character"),
        (("--to", "leader", "--type", "user_goal", "--body", "goal: x"), 1, "no workspace/queue here"),
    ],
)
def test_send_refuses(words: tuple[str, ...], code: int, sentence: str, program: Program) -> None:
    queue = () if "no workspace" in sentence else ("--queue", str(program.tree / "q"))
    said = program("send", "--from", "user", *words, *queue)
    assert (said.code, said.out) == (code, b"")
    assert sentence in said.err
    assert os.listdir(program.tree) == ["scripts"]


PLACE = """
import sys
sys.path.insert(0, "scripts/lib")
import ignite_mime
for n in range(12):
    ignite_mime._place(ignite_mime._draft(b".", sys.argv[1].encode()), b".", "a", 1770263544123456)
"""


def test_names_that_are_taken_count_on(program: Program) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", PLACE, name], cwd=program.tree) for name in ("A", "B")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    names = sorted(name for name in os.listdir(program.tree) if name != "scripts")
    assert names == [f"a_{1770263544123456 + number}.mime" for number in range(24)]
    assert sorted((program.tree / name).read_text() for name in names) == ["A"] * 12 + ["B"] * 12


SLOW = {"argparse", "collections", "contextlib", "ctypes", "email", "json", "pathlib", "re", "typing"}


def test_reading_loads_nothing_that_is_slow(program: Program) -> None:
    path = program.put(RAW)
    command = [sys.executable, "-S", "-I", "-X", "importtime", str(CODEC), "parse", str(path)]
    told = subprocess.run(command, capture_output=True, text=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "os" in loaded
    assert loaded & SLOW == set()
