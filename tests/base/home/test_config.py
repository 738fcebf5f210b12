"""A mistake in a file is told with file, line and key, in one line; what holds is read-only and whole."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kingdom.base import words
from kingdom.base.errors import BadConfig
from kingdom.base.home import config, dotenv
from tests.fixtures import founded

KING = """\
# the king's
slack:
  default_channel: dev
concurrency:
  max_soldiers: 3
"""


def load(home: Path, text: str, name: str = "king") -> config.Config:
    places = founded(home)
    (places.config / f"{name}.yaml").write_text(text)
    return config.load(places, name)


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n\n", "---\n"])
def test_a_file_that_says_nothing_means_the_defaults(home: Path, text: str | None) -> None:
    loaded = load(home, text) if text is not None else config.load(founded(home), "king")
    assert config.thawed(loaded) == {
        "slack": {"default_channel": "kingdom"},
        "retry": {"max_attempts": 2, "backoff": "fixed", "backoff_seconds": 60},
        "concurrency": {"max_soldiers": 3},
        "intervals": {"event_check_seconds": 10, "result_check_seconds": 10, "schedule_check_seconds": 60},
        "resources": {"stale_seconds": 120},
        "results": {"unreadable_seconds": 600},
    }


def test_the_seeds_file_loads_unchanged(home: Path) -> None:
    loaded = load(
        home,
        'slack:\n  default_channel: "dev-eddy"\n\nretry:\n  max_attempts: 2\n  backoff_seconds: 60\n\nconcurrency:\n'
        "  max_soldiers: 3         # at the same time\n\nintervals:\n  event_check_seconds: 10\n"
        "  result_check_seconds: 10\n  schedule_check_seconds: 60\n",
    )
    assert loaded["concurrency"]["max_soldiers"] == 3
    assert loaded["slack"]["default_channel"] == "dev-eddy"


def test_what_is_named_holds_and_the_rest_is_filled_in(home: Path) -> None:
    loaded = load(home, KING)
    assert loaded["slack"]["default_channel"] == "dev"
    assert loaded["retry"]["max_attempts"] == 2


def test_what_is_loaded_cannot_be_changed(home: Path) -> None:
    loaded = load(home, KING)
    with pytest.raises(TypeError):
        loaded["slack"]["default_channel"] = "x"


MISTAKES = {
    "a text for a number": ("concurrency:\n  max_soldiers: many\n", r"king\.yaml:2: concurrency\.max_soldiers: 'many'"),
    "too small": (
        "slack: {}\nconcurrency:\n  max_soldiers: 0\n",
        r"king\.yaml:3: concurrency\.max_soldiers: 0 is less",
    ),
    "a list for a group": ("slack: [a]\n", r"king\.yaml:1: slack: "),
    "a list for everything": ("- a\n", r"king\.yaml:1: the file: must hold keys and values"),
    "a text for everything": ("hello\n", r"king\.yaml:1: the file: must hold keys and values"),
    "a key twice": (KING + "slack: {}\n", r"king\.yaml:6: slack: is here a second time"),
    "no YAML": ("slack:\n  a: [1\nb: 2\n", r"king\.yaml:3: YAML: "),
    "a tab": ("slack:\n\tdefault_channel: x\n", r"king\.yaml:2: YAML: "),
    "two documents": ("slack: {}\n---\nslack: {}\n", r"king\.yaml:2: YAML: "),
    "a key that is a list": ("? [a]\n: b\n", r"king\.yaml:1: YAML: "),
    "an object of Python": (
        "slack: !!python/object/apply:os.system [id]\n",
        r"king\.yaml:1: YAML: could not determine",
    ),
    "no number": ("concurrency:\n  max_soldiers: .nan\n", r"king\.yaml:2: concurrency\.max_soldiers: "),
    "no end": ("intervals:\n  event_check_seconds: .inf\n", r"king\.yaml:2: intervals\.event_check_seconds: "),
    "depth without end": ("a: " + "[" * 5000 + "]" * 5000, r"king\.yaml:1: the file: nested more than 50 deep"),
    "depth without end that never closes": ("[" * 50_000, r"king\.yaml:1: the file: nested more than 50 deep"),
    "depth of another kind": ("".join(f"{' ' * n}a:\n" for n in range(900)), r"king\.yaml:5\d: the file: nested"),
    "a list in itself": ("a: &a [*a]\n", r"king\.yaml:1: the file: nested more than 50 deep"),
    "laughs": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        r"king\.yaml",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told_where_it_stands(home: Path, what: str) -> None:
    text, told = MISTAKES[what]
    began = time.process_time()
    with pytest.raises(BadConfig, match=told) as caught:
        load(home, text)
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < 5


def test_a_file_that_is_no_text_is_told_so(home: Path) -> None:
    places = founded(home)
    (places.config / "king.yaml").write_bytes(b"slack: \xff\n")
    with pytest.raises(BadConfig, match="not UTF-8 at byte 7"):
        config.load(places, "king")
    (places.config / "king.yaml").unlink()
    (places.config / "king.yaml").mkdir()
    with pytest.raises(BadConfig, match="not a regular file"):
        config.load(places, "king")


def test_a_misspelt_key_is_answered_with_the_nearest_one() -> None:
    assert words.closest("quque", ["queue", "events"]) == ", did you mean 'queue'?"
    assert words.closest("xyz", ["queue"]) == ""


EXISTING: dict[str, tuple[str, list[str]]] = {
    "king": (
        """\
slack:
  default_channel: dev
retry:
  max_attempts: 2
  backoff_seconds: 60
concurrency:
  max_soldiers: 3
petition:
  enabled: true
  timeout_seconds: 30
intervals:
  event_check_seconds: 10
  result_check_seconds: 10
  schedule_check_seconds: 60
  petition_check_seconds: 5
  loop_tick_seconds: 5
""",
        ["petition (line 8)", "intervals.petition_check_seconds (line 15)", "intervals.loop_tick_seconds (line 16)"],
    ),
    "envoy": (
        """\
slack:
  bot_token_env: SLACK_BOT_TOKEN
  default_channel: dev
socket_mode:
  app_token_env: SLACK_APP_TOKEN
intervals:
  outbound_seconds: 5
  loop_tick_seconds: 1
  conversation_ttl_seconds: 3600
  thread_check_seconds: 30
  channel_check_seconds: 30
  conversation_check_seconds: 15
retry:
  max_count: 3
""",
        ["intervals.loop_tick_seconds (line 8)", "intervals.thread_check_seconds (line 10)"],
    ),
    "chamberlain": (
        """\
monitoring: {interval_seconds: 30}
heartbeat: {threshold_seconds: 120}
thresholds:
  cpu_yellow: 60
  cpu_orange: 80
  cpu_red: 90
  memory_yellow: 60
  memory_orange: 80
  memory_red: 90
  disk_warning: 85
anomaly: {consecutive_failures: 3, timeout_spike: 5, event_stale_minutes: 30}
auto_recovery: {restart_sentinel: true, restart_others: false}
retention: {log_max_mb: 100, logs_days: 7, results_days: 7, queue_days: 7,
            prompts_days: 3, session_logs_days: 7, seen_days: 30}
cleanup: {hour: 3}
events_rotation: {hour: 0}
daily_report: {hour: 18}
token_limits: {daily: 1000}
pricing: {input: 3}
""",
        ["heartbeat (line 2)", "thresholds.memory_red (line 9)", "auto_recovery (line 12)", "pricing (line 19)"],
    ),
    "system": (
        """\
version: "4.0.0"
base_dir: /opt/kingdom
runtime:
  engine: claude
  claude: {command: claude}
  codex: {command: codex, model: o4}
""",
        ["version (line 1)", "base_dir (line 2)"],
    ),
}
"""Files of existing homes, and keys of theirs that have no effect here."""


@pytest.mark.parametrize("name", EXISTING)
def test_a_file_of_an_existing_home_loads_and_what_has_no_effect_is_named(home: Path, name: str) -> None:
    text, ignored = EXISTING[name]
    load(home, text, name)
    (remark,) = config.remarks(founded(home), name)
    assert remark.startswith(f"{home}/config/{name}.yaml: ignored unknown keys: ")
    assert [key for key in ignored if key.removesuffix(")") not in remark] == []


def test_what_existing_files_set_holds(home: Path) -> None:
    assert load(home, EXISTING["system"][0], "system")["runtime"]["engine"] == "claude"
    assert load(home, EXISTING["king"][0])["slack"]["default_channel"] == "dev"
    envoy = load(home, EXISTING["envoy"][0].replace("outbound_seconds: 5", "outbound_seconds: 7"), "envoy")
    assert (envoy["retry"]["attempts"], envoy["intervals"]["message_check_seconds"]) == (3, 7)
    assert (envoy["slack"]["default_channel"], envoy["slack"]["app_token_env"]) == ("dev", "SLACK_APP_TOKEN")
    existing = EXISTING["chamberlain"][0].replace("warning: 85", "warning: 75").replace("seconds: 30}", "seconds: 45}")
    chamberlain = load(home, existing.replace("cpu_red: 90", "cpu_red: 95"), "chamberlain")
    assert (chamberlain["thresholds"]["disk_percent"], chamberlain["intervals"]["vitals_seconds"]) == (75, 45)
    assert chamberlain["thresholds"]["red"] == 95


@pytest.mark.parametrize(
    ("text", "attempts"),
    [("retry: {max_count: 5}\n", 5), ("retry: {max_count: 5, attempts: 2}\n", 2), ("retry: 5\n", None)],
)
def test_a_foreign_name_holds_where_ours_does_not_stand(home: Path, text: str, attempts: int | None) -> None:
    if attempts is None:
        with pytest.raises(BadConfig, match="retry"):
            load(home, text, "envoy")
        return
    assert load(home, text, "envoy")["retry"]["attempts"] == attempts


def test_a_bad_value_under_a_foreign_name_is_told_with_its_line(home: Path) -> None:
    with pytest.raises(BadConfig, match=r"envoy\.yaml:3: retry\.attempts"):
        load(home, "slack: {}\nretry:\n  max_count: -1\n", "envoy")


def test_a_foreign_key_is_left_out_of_its_group_and_does_not_change_the_file_for_others(home: Path) -> None:
    value = {"retry": {"max_count": 5}, "intervals": {"outbound": 1, "reminder_hours": 2}}
    lines: dict[tuple[str | int, ...], int] = {("retry", "max_count"): 7}
    names = {("retry", "max_count"): ("again", "attempts"), ("intervals", "outbound"): ("intervals", "out")}
    assert config._renamed(value, names, lines) == {
        "intervals": {"out": 1, "reminder_hours": 2},
        "again": {"attempts": 5},
    }
    assert (lines["again", "attempts"], lines["intervals", "out"]) == (7, 1)
    assert value["retry"] == {"max_count": 5}


def test_a_queue_says_what_it_says_and_the_rest_is_left_to_the_policy_of_all(home: Path) -> None:
    policy = {"queues": {"a": {"ttlSec": 5}}}
    assert config.validated("config/mq", policy, {}, home)["queues"] == {"a": {"ttlSec": 5}}


def test_every_mistake_of_a_file_is_told_from_top_to_bottom(home: Path) -> None:
    path = founded(home).config / "mq.yaml"
    path.write_text("queues:\n  - name: a\n    policy:\n      ttlSec: soon\n  - 5\nbackend: paper\n")
    value, lines = config.read_yaml(path)
    told = [str(error) for error in config.errors_in("config/mq", value, lines, path)]
    assert [said.partition("mq.yaml:")[2].partition(":")[0] for said in told] == ["4", "5", "6"], told
    assert config.errors_in("config/mq", {}, {}, path) == []
    assert len(config.errors_in("config/mq", 5, {}, path)) == 1


@pytest.mark.parametrize("name", ["king", "envoy", "chamberlain", "general", "system"])
def test_what_we_write_ourselves_has_nothing_to_remark(home: Path, name: str) -> None:
    pristine = (Path(__file__).parents[3] / "config" / "default" / f"{name}.yaml").read_text()
    load(home, pristine, name)
    assert config.remarks(founded(home), name) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (KING + "colour: red\n", "colour (line 6)"),
        ("slack:\n  default_channel: x\n  defualt: y\n", "slack.defualt (line 3)"),
        ("1: a\nb: c\n", "1 (line 1), b (line 2)"),
    ],
)
def test_an_unknown_key_is_ignored_and_named(home: Path, text: str, told: str) -> None:
    load(home, text)
    assert config.remarks(founded(home), "king") == [f"{home}/config/king.yaml: ignored unknown keys: {told}"]


def secrets(home: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    (home / ".env").write_text(text)
    (home / ".env").chmod(mode)
    return dotenv.secrets(founded(home))


def test_secrets_are_read_as_shells_write_them(home: Path) -> None:
    text = "# tokens\n\nA=1\nexport B='two words'\n C = \"3\"\nD=a=b#c\nE=\n"
    assert secrets(home, text) == {"A": "1", "B": "two words", "C": "3", "D": "a=b#c", "E": ""}
    assert dotenv.secrets(founded(home / "without")) == {}


def test_comments_behind_secrets_are_no_part_of_them(home: Path) -> None:
    text = "A=1 # one\nB='two # words' # two\nC=\"3\"# three\nD=a#b\nE= # none\nF=it's\nexport G=7\t# seven\n"
    found = {"A": "1", "B": "two # words", "C": "3", "D": "a#b", "E": "", "F": "it's", "G": "7"}
    assert secrets(home, text) == found


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_secrets_that_others_may_read_are_refused(home: Path, mode: int) -> None:
    with pytest.raises(BadConfig, match=r"\.env: permissions: .*chmod 600"):
        secrets(home, "A=1\n", mode)


@pytest.mark.parametrize("line", ["token", "a b=1", "=1", "1A=2"])
def test_a_line_that_is_no_setting_is_told_without_its_value(home: Path, line: str) -> None:
    assert secrets(home, f"A=1\n{line}\nB=2\n") == {"A": "1", "B": "2"}
    assert config.remarks(founded(home)) == [f"{home}/.env: ignored lines that do not read NAME=value: 2"]


def test_a_link_is_no_file_of_secrets(home: Path) -> None:
    (home / "elsewhere").write_text("A=1\n")
    (home / "elsewhere").chmod(0o600)
    (home / ".env").symlink_to("elsewhere")
    with pytest.raises(BadConfig, match="permissions"):
        dotenv.secrets(founded(home))


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        ("", {"A": "1"}, "A=1\n"),
        ("# tokens\nA=1\nB=2\n", {"A": "3"}, "# tokens\nA=3\nB=2\n"),
        ("A=1\nB=2\nexport A=4\n", {"A": "3", "C": "5"}, "A=3\nB=2\nC=5\n"),
        ("\nB=2", {}, "\nB=2\n"),
    ],
)
def test_values_are_put_in_their_lines_and_every_other_line_stays(
    text: str, values: dict[str, str], written: str
) -> None:
    assert dotenv.with_values(text, values) == written


@pytest.mark.parametrize(("depth", "is_refused"), [(50, False), (51, True)])
def test_so_deep_a_file_may_be(tmp_path: Path, depth: int, is_refused: bool) -> None:
    path = tmp_path / "king.yaml"
    path.write_text("[" * depth + "]" * depth)
    if is_refused:
        with pytest.raises(BadConfig, match="nested more than 50 deep"):
            config.read_yaml(path)
    else:
        assert config.read_yaml(path)[0]


@pytest.mark.parametrize(("keys", "is_refused"), [(2, False), (3, True)])
def test_so_many_keys_a_file_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int, is_refused: bool
) -> None:
    monkeypatch.setattr(config, "MOST_KEYS", 3)
    path = tmp_path / "king.yaml"
    path.write_text("".join(f"key{number}: 1\n" for number in range(keys)))
    if is_refused:
        with pytest.raises(BadConfig, match="more than 3 keys"):
            config.read_yaml(path)
    else:
        assert len(config.read_yaml(path)[0]) == keys


def test_of_very_many_unknown_keys_the_first_are_named(home: Path) -> None:
    load(home, "".join(f"unknown_{number}: 1\n" for number in range(200)))
    (remark,) = config.remarks(founded(home), "king")
    assert len(remark) == 1000


def test_a_secret_is_hidden_in_every_form_the_longest_first() -> None:
    said = 'a="sesame-open" b="two\\nlines" c=sesame d=short'
    assert dotenv.hide(said, ["sesame", "sesame-open", "two\nlines", "short"]) == (
        'a="[hidden]" b="[hidden]" c=[hidden] d=short'
    )


SUMMER, WINTER = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)


def zone(home: Path, name: str | None) -> Any:
    return config.zone(founded(home), {"timezone": name})


def test_the_zone_that_is_named_holds(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Seoul")
    berlin = zone(home, "Europe/Berlin")
    assert [day.astimezone(berlin).utcoffset() for day in (SUMMER, WINTER)] == [timedelta(hours=2), timedelta(hours=1)]


@pytest.mark.parametrize("name", ["Europe/Berlin", ":Europe/Berlin"])
def test_the_machines_zone_has_summer_time(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    machine = zone(home, None)
    assert [day.astimezone(machine).utcoffset() for day in (SUMMER, WINTER)] == [timedelta(hours=2), timedelta(hours=1)]


@pytest.mark.parametrize("name", ["nowhere", "", "/etc/localtime"])
def test_a_machine_of_an_unknown_zone_still_has_one(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    assert SUMMER.astimezone(zone(home, None)).utcoffset() is not None


OFFSET_IN_BERLIN = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from kingdom.base.home import config
from kingdom.base.home.places import Places

zone = config.zone(Places(Path(sys.argv[1])), {"timezone": "Europe/Berlin"})
print(datetime(2026, 7, 1, tzinfo=UTC).astimezone(zone))
"""


def test_a_named_zone_holds_on_a_machine_without_zone_data(home: Path) -> None:
    """`zoneinfo` looks for the machine's data once, so a fresh interpreter is asked."""
    command = [sys.executable, "-c", OFFSET_IN_BERLIN, str(home)]
    asked = subprocess.run(command, env={"PYTHONTZPATH": ""}, capture_output=True, text=True)
    assert asked.stdout == "2026-07-01 02:00:00+02:00\n", asked.stderr


@pytest.mark.parametrize("name", ["Mars/Base", "", "../../etc/passwd", "America", "Europe/Berlin\0"])
def test_a_zone_that_is_none_is_told(home: Path, name: str) -> None:
    with pytest.raises(BadConfig, match=r"system\.yaml: timezone: there is no time zone"):
        zone(home, name)
