"""Each promise to people is broken in a copy of the program, and a test of the quick suite must see it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults import changes, mutants, trees
from tests.faults.changes import Text, body, drop, omit, replace
from tests.faults.mutants import Mutant

LOOKING = "tests/cli/test_looking.py::"
UPKEEP = "tests/court/upkeep/"
JUMPS = "tests/mq/test_clock_jumps.py::"
USERS = "tests/mq/mailbox/test_other_users.py::"
REPORT, WORKSPACE = "tests/court/general/test_report.py::", "tests/court/soldiers/test_workspace.py::"
MUTANTS = [
    Mutant(
        "a launcher that does not answer is left alive by down",
        "kingdom.cli.launchers:end_all",
        drop("steward.kill()"),
        caught_by="tests/faults/watch/test_hung_launcher.py::test_down_ends_everything_under_a_launcher_that_does_not_answer[supervisord]",
    ),
    Mutant(
        "a launcher that nobody needs is never asked",
        "kingdom.court.steward.roll_call:RollCall._must_ask",
        body("return False"),
        caught_by="tests/faults/watch/test_hung_launcher.py::test_a_launcher_that_hangs_is_replaced_though_every_role_beats[supervisord]",
    ),
    Mutant(
        "a failed task is deleted when it is old",
        "kingdom.court.upkeep.retention:_has_failed",
        body("return False"),
        caught_by=f"{UPKEEP}test_retention.py::test_a_failed_task_stays_with_its_event_and_result_until_it_is_retried",
    ),
    Mutant(
        "a time with another offset is refused",
        "kingdom.base.records.foreign:_in_utc",
        body("return at"),
        caught_by="tests/base/records/test_foreign.py::test_what_is_spelt_otherwise_is_read",
    ),
    Mutant(
        "what another program keeps in a workspace is a finding",
        "kingdom.court.upkeep.checks:_orphans",
        replace("task.startswith(TASK)", "task"),
        caught_by=f"{UPKEEP}test_fsck.py::test_what_another_program_keeps_in_a_workspace_is_no_finding",
    ),
    Mutant(
        "status is content with a full disk",
        "kingdom.cli.overview:_disk",
        body("return Section([])"),
        caught_by=f"{LOOKING}test_status_is_not_content_with_a_full_disk",
    ),
    Mutant(
        "a home does not keep the port that it found",
        "kingdom.hall.gateway.job:GatewayJob._keep",
        body("return None"),
        caught_by="tests/hall/gateway/test_port.py::test_homes_find_ports_of_their_own_and_keep_them",
    ),
    Mutant(
        "what an owner adds to a checkout goes along into new homes",
        "kingdom.cli.packages:shipped_files",
        body("return sorted(path for path in Places(find_data()).packages.rglob('*') if path.is_file())"),
        caught_by="tests/cli/test_shipped.py::test_what_an_owner_adds_to_a_checkout_goes_into_no_other_home",
    ),
    Mutant(
        "up leaves roles that were started before an upgrade",
        "kingdom.cli.start_stop:_renew",
        body("return []"),
        caught_by="tests/faults/watch/test_older_code.py::test_up_restarts_the_roles_that_run_older_code_one_by_one[tmux]",
    ),
    Mutant(
        "an upgrade goes on after a role that does not come up",
        "kingdom.cli.start_stop:_renew",
        replace("launchers.not_up(A, B, [row])", "[]"),
        caught_by="tests/faults/watch/test_older_code.py::test_a_role_that_does_not_come_up_with_newer_code_keeps_the_others_running",
    ),
    Mutant(
        "our own heartbeat is empty at first, as that of another program",
        "kingdom.base.runtime.heartbeat:Heartbeat",
        drop("Disk(A).create(B, C)"),
        caught_by="tests/base/runtime/test_heartbeat.py::test_a_heartbeat_of_ours_is_never_empty",
    ),
    Mutant(
        "say ends before a message that waits for the envoy",
        "kingdom.cli.say:ReplyListener._is_to_be_told",
        body("return False"),
        caught_by="tests/cli/test_looking.py::test_say_tells_how_an_event_ended_when_time_is_up_before_its_message_is_sent",
    ),
    Mutant(
        "a message waits for the wall clock however long it was to wait",
        "kingdom.mq.queue_state:QueueState._longest_wait",
        body("return names.due_of(name)"),
        caught_by=f"{JUMPS}test_a_backlog_is_delivered_by_an_engine_whose_clock_is_behind",
    ),
    Mutant(
        "a wall clock that is set is not noticed",
        "kingdom.mq.wall_watch:WallWatch.look",
        body("return"),
        caught_by=f"{JUMPS}test_when_the_clock_is_set_right_what_is_due_by_it_is_delivered",
    ),
    Mutant(
        "an old lease lasts as long as the wall clock says",
        "kingdom.mq.leases:Leases.restore",
        replace("min(until, latest)", "until"),
        caught_by=f"{JUMPS}test_a_lease_lasts_no_longer_than_it_was_given_for",
    ),
    Mutant(
        "a message lives as long as a wall clock that is behind says",
        "kingdom.mq.expiries:Expiries.end_of",
        replace("min(A, B)", "A"),
        caught_by=f"{JUMPS}test_a_time_to_live_is_no_longer_than_it_was",
    ),
    Mutant(
        "a message outlives its time by a wall clock that was set",
        "kingdom.mq.expiries:Expiries.judge",
        body("return"),
        caught_by=f"{JUMPS}test_when_the_clock_is_set_right_what_has_lived_by_it_is_gone",
    ),
    Mutant(
        "a message is called as old as the clock was wrong",
        "kingdom.mq.wall_watch:WallWatch.as_told_now",
        body("return when"),
        caught_by=f"{JUMPS}test_consumers_hear_by_the_clock_as_it_is_now_when_a_message_was_published",
    ),
    Mutant(
        "a user who is not listed is served",
        "kingdom.mq.mailbox.senders:Senders._why_not",
        replace("self._is_at_home(sender)", "True"),
        caught_by=f"{USERS}test_a_user_who_is_not_listed_can_do_nothing",
    ),
    Mutant(
        "a client of another user is not asked what it may do",
        "kingdom.mq.rights:Rights.check",
        body("return"),
        caught_by=f"{USERS}test_a_listed_client_does_what_is_listed_and_hears_no_to_the_rest",
    ),
    Mutant(
        "the calls of a batch are not checked",
        "kingdom.mq.mailbox.commands:_answer",
        drop("row.check(A, B)"),
        caught_by=f"{USERS}test_a_batch_of_calls_is_checked_call_by_call",
    ),
    Mutant(
        "a consumer is who it says",
        "kingdom.mq.calls:_check_holder",
        body("return"),
        caught_by=f"{USERS}test_the_consumer_is_who_the_uid_says",
    ),
    Mutant(
        "a key alone is enough whatever the policy says",
        "kingdom.mq.leases:Leases.held",
        replace("not lease.queue.policy.ack_by_key", "False"),
        caught_by="tests/mq/mailbox/test_original_command_lines.py::test_else_one_line_says_what_to_give",
    ),
    Mutant(
        "dead/ grows for ever",
        "kingdom.mq.mailbox.dead:DeadRequests.tidy",
        body("return"),
        caught_by="tests/mq/mailbox/test_dead.py::test_the_oldest_go_when_there_are_too_many",
    ),
    Mutant(
        "what was to be handed out stays leased when its group cannot be committed",
        "kingdom.mq.mailbox.serve:Server._refuse_as_undecided",
        drop("self._take_back_leases(leases)"),
        caught_by="tests/mq/mailbox/test_full_groups.py::test_what_was_to_be_handed_out_waits_again_when_its_group_fails",
    ),
    Mutant(
        "nothing can be consumed while there is no room to remember requests",
        "kingdom.mq.stores.files:FileStore._write_journal",
        replace("error.errno not in FULL", "True"),
        caught_by="tests/mq/test_files_store.py::test_messages_are_consumed_while_there_is_no_room_to_remember_requests",
    ),
    Mutant(
        "a take is synced",
        "kingdom.mq.stores.base:is_take",
        body("return False"),
        caught_by="tests/mq/test_takes.py::test_a_take_is_not_synced",
    ),
    Mutant(
        "an ack syncs only the folder that its message leaves",
        "kingdom.base.disk.bulk:FileBatch._lose",
        drop("self._lost.update(came_from)"),
        caught_by="tests/mq/test_takes.py::test_an_ack_syncs_also_the_folder_that_its_message_came_from",
    ),
    Mutant(
        "a call of several turns goes on after a commit that failed",
        "kingdom.mq.mailbox.serve",
        drop("group.extend(self._continued)"),
        caught_by="tests/mq/mailbox/test_serve.py::test_a_call_of_several_turns_is_refused_when_one_of_them_cannot_be_committed",
    ),
    Mutant(
        "a library's call of several turns goes on with what was forgotten",
        "kingdom.mq.local",
        replace("asked.loads != A", "False"),
        caught_by="tests/mq/mailbox/test_session.py::test_a_call_of_several_turns_does_not_go_on_with_what_was_forgotten_meanwhile",
    ),
    Mutant(
        "a raw report of an earlier attempt counts",
        "kingdom.court.soldiers",
        replace("A if A and A.attempt == B else None", "A if A else None"),
        caught_by="tests/court/general/test_report.py::test_a_report_of_an_earlier_try_comes_too_late",
    ),
    Mutant(
        "a workspace is removed with the work in it",
        "kingdom.court.general.report:finish",
        replace("general.work_left(A)", "[]"),
        caught_by=f"{REPORT}test_work_is_kept_however_its_task_ends_and_its_result_names_where",
    ),
    Mutant(
        "nobody reads where a task's work is",
        "kingdom.court.king.messages:_final",
        replace("kept.sentence(A, B)", "''"),
        caught_by="tests/court/king/test_outcomes.py::test_an_outcome_becomes_these_messages",
    ),
    Mutant(
        "the work of a try goes when the next one begins",
        "kingdom.court.soldiers.workspace:Workspaces.renew",
        replace("self.left(task, None) != []", "False"),
        caught_by=f"{REPORT}test_work_of_an_earlier_try_is_kept_beside_and_named_at_the_end",
    ),
    Mutant(
        "a restarted general removes what nobody has searched",
        "kingdom.court.soldiers.workspace:Workspaces.clear_if_done",
        replace("work.at_a_glance(A, is_clone=False)", "False"),
        caught_by=f"{REPORT}test_a_workspace_that_cannot_be_removed_for_a_kill_goes_at_the_next_start",
    ),
    Mutant(
        "a soldier's name for git is not set",
        "kingdom.court.soldiers.prepare:basic_order",
        replace("{'TMPDIR': A, **B}", "{'TMPDIR': A}"),
        caught_by=f"{REPORT}test_a_soldier_can_commit_where_nobody_has_a_name",
    ),
    Mutant(
        "homes that have stopped may be read",
        "kingdom.court.chamberlain.job:ChamberlainJob.turn",
        drop("neighbours.note"),
        caught_by="tests/court/chamberlain/test_job.py::test_a_home_that_is_at_work_is_noted",
    ),
    Mutant(
        "backups of other homes may be read",
        "kingdom.court.soldiers.neighbours:_data_of",
        replace("filter(A, other.known_backups())", "()"),
        caught_by="tests/court/soldiers/test_neighbours.py::test_backups_of_a_home_at_work_are_withheld",
    ),
    Mutant(
        "a workspace is removed while another task goes on in it",
        "kingdom.court.general.context:GeneralContext.clear_traces",
        replace("self._goes_on(A, B)", "False"),
        caught_by="tests/council/test_general.py::test_words_about_a_goal_leave_the_workspace_in_which_it_goes_on[False]",
    ),
    Mutant(
        "a sandbox gets the whole of its owner's git",
        "kingdom.court.soldiers.owner:lay_git_config",
        replace("git_settings(sandbox=A)", "git_settings(sandbox=False)"),
        caught_by=f"{REPORT}test_a_name_to_commit_in_leaves_the_rest_of_the_owners_git_as_it_is[on]",
    ),
    Mutant(
        "what cannot be searched counts as clean",
        "kingdom.court.soldiers.workspace:Workspaces._holds_work",
        replace("code != 0", "code == 1"),
        caught_by=f"{WORKSPACE}test_what_cannot_be_searched_is_kept[it takes too long]",
    ),
    Mutant(
        "commits on no branch are not seen",
        "kingdom.court.soldiers.work:_has_objects",
        body("return False"),
        caught_by=f"{WORKSPACE}test_what_a_soldier_leaves_in_a_clone_is_kept_and_nothing_else[a commit on no branch]",
    ),
    Mutant(
        "a mirror drops the objects that kept clones borrow",
        "kingdom.court.soldiers.workspace:Workspaces._git",
        replace("[*SAFE_GIT, *_KEEP_OBJECTS, *arguments]", "[*SAFE_GIT, *arguments]"),
        caught_by=f"{WORKSPACE}test_objects_of_a_kept_clone_stay_in_the_mirror_when_a_branch_is_rewritten",
    ),
    Mutant(
        "what an earlier try has left is all that is known",
        "kingdom.court.general.job:GeneralJob._start",
        drop("general.workspaces.forget"),
        caught_by=f"{REPORT}test_a_workspace_is_searched_anew_after_another_try_in_it",
    ),
    Mutant(
        "a full disk costs a soldier its work",
        "kingdom.court.soldiers.prepare:order",
        omit("made._replace", "lasting"),
        caught_by="tests/court/soldiers/test_prepare.py::"
        "test_what_is_ordered_fits_the_schema_and_the_soldier_may_write_its_own_folders_alone",
    ),
    Mutant(
        "a kept workspace goes though its task waits",
        "kingdom.court.upkeep.retention:_workspace_is_kept",
        replace("kept.task_of(name)", "name"),
        caught_by=f"{UPKEEP}test_retention.py::test_kept_work_goes_after_thirty_days_unless_its_task_waits",
    ),
    Mutant(
        "the result of an open question is deleted when it is old",
        "kingdom.court.upkeep.retention:_result_is_kept",
        body("return False"),
        caught_by=f"{UPKEEP}test_retention.py::test_all_of_an_open_question_or_conversation_stays",
    ),
    Mutant(
        "the note of an answer may vanish before its question",
        "kingdom.court.upkeep.retention:Cleaning._clean",
        drop("sync_folder(A)"),
        caught_by=f"{UPKEEP}test_retention.py::test_the_question_goes_before_the_note_of_its_answer",
    ),
    Mutant(
        "a log of yesterday goes on",
        "kingdom.court.upkeep.rotation:_is_of_yesterday",
        body("return False"),
        caught_by=f"{UPKEEP}test_retention.py::test_logs_get_another_name",
    ),
    Mutant(
        "fsck takes what moves for damage",
        "kingdom.court.upkeep.fsck:look",
        drop("pause()"),
        caught_by=f"{UPKEEP}test_fsck.py::test_what_moves_meanwhile_is_no_finding",
    ),
    Mutant(
        "a repair deletes what is in the way",
        "kingdom.court.upkeep.fsck:Mender.set_aside",
        body("path.unlink()"),
        caught_by=f"{UPKEEP}test_fsck.py::test_nothing_is_deleted_by_a_repair",
    ),
    Mutant(
        "a backup holds the task of an event that it holds as waiting",
        "kingdom.court.upkeep.backup:_drop_young_tasks",
        body("return set()"),
        caught_by=f"{UPKEEP}test_backup.py::test_what_happens_between_two_files_leaves_a_home_in_which_everything_holds",
    ),
    Mutant(
        "a backup holds secrets",
        "kingdom.court.upkeep.backup:_secrets",
        body("return set()"),
        caught_by=f"{UPKEEP}test_backup.py::test_secrets_are_in_it_only_when_asked_for",
    ),
    Mutant(
        "a home of a newer program is taken over",
        "kingdom.court.upkeep.versions:refuse_newer",
        body("pass"),
        caught_by=f"{UPKEEP}test_versions.py::test_a_newer_home_is_refused_with_one_sentence_and_left_alone",
    ),
    Mutant(
        "what people say waits on a yellow machine",
        "kingdom.court.rules.gate:Gate.admits",
        replace("A.is_said and PEOPLE in B", "False"),
        caught_by="tests/court/rules/test_gate.py::test_each_health_admits_its_work",
        quick=True,
    ),
    Mutant(
        "what needs no model waits on a red machine",
        "kingdom.court.rules.gate:Gate.admits",
        replace("not A.needs_model", "False"),
        caught_by="tests/court/rules/test_gate.py::test_each_health_admits_its_work",
    ),
    Mutant(
        "a full memory for which nobody waits is an alarm",
        "kingdom.court.chamberlain.vitals:memory_level",
        replace("A is not None and A <= B['memory_pressure_percent']", "False"),
        caught_by="tests/court/chamberlain/test_vitals.py::test_the_health_by_memory",
    ),
    Mutant(
        "little memory is no alarm where waiting for it is not measured",
        "kingdom.court.chamberlain.vitals:memory_level",
        replace(
            "A is not None and A <= B['memory_pressure_percent']", "A is None or A <= B['memory_pressure_percent']"
        ),
        caught_by="tests/court/chamberlain/test_vitals.py::test_the_health_by_memory",
    ),
    Mutant(
        "install returns before its general works by the new manifest",
        "kingdom.cli.launchers:take_over",
        replace("wait(lambda: not slow(), START_SECONDS)", "True"),
        caught_by="tests/cli/test_generals.py::test_installing_waits_for_the_king_and_says_who_has_not_taken_it_over",
    ),
    Mutant(
        "an owner's changes go into the wheel",
        "hatch_build.py",
        Text("if not name.startswith(OWNERS):", "if True:"),
        caught_by="tests/journey/test_checkout.py::test_a_wheel_from_a_used_checkout_holds_what_a_pristine_one_does",
    ),
    Mutant(
        "up does not wait for a supervisord that shuts down",
        "kingdom.court.steward.supervisord:Supervisord.start_launcher",
        drop("self._wait_for_shutdown()"),
        caught_by="tests/faults/watch/test_launchers_by_hand.py::"
        "test_up_right_after_a_shutdown_by_hand_waits_for_its_end",
    ),
    Mutant(
        "Ctrl-C in an attached terminal ends the role",
        "kingdom/court/steward/tmux.py",
        Text('"attach-session", "-r",', '"attach-session",'),
        caught_by="tests/court/steward/test_attach.py::test_ctrl_c_in_an_attached_terminal_does_not_reach_the_role",
    ),
    Mutant(
        "an owner's wish to restart a process ends its successor too",
        "kingdom.court.steward.roll_call:RollCall._asked",
        replace('(wish.get("pid"), wish.get("started"))', "(pid, started_at(pid))"),
        caught_by="tests/court/steward/test_roll_call.py::"
        "test_a_wish_about_another_process_or_about_who_shall_not_run_is_taken_away",
    ),
    Mutant(
        "a success is retried without being asked for again",
        "kingdom.cli.queues",
        drop("_refuse_if_done(A)"),
        caught_by=f"{LOOKING}test_a_success_is_retried_only_when_it_is_asked_for_again",
    ),
    Mutant(
        "emit takes what is no event",
        "kingdom.cli.emit:emit",
        drop("schemas.check('event', A)"),
        caught_by="tests/cli/test_emit.py::test_what_is_no_event_is_refused",
    ),
    Mutant(
        "emit loses what an event is about",
        "kingdom.cli.emit:emit",
        omit("Event", "repo"),
        caught_by="tests/cli/test_emit.py::test_an_event_is_put_in",
    ),
    Mutant(
        "nobody is told that a message waits for the hall's worker",
        "kingdom.court.reasons:Reasons.keeps_messages",
        replace('self._does_not_run("worker")', "None"),
        caught_by=f"{LOOKING}test_a_message_for_the_hall_waits_for_its_worker",
    ),
    Mutant(
        "a line of why has no time",
        "kingdom.cli.why:why",
        replace("clock(at)", "''"),
        caught_by=f"{LOOKING}test_why_says_when_on_every_line",
    ),
    Mutant(
        "why wants the whole of an id",
        "kingdom.cli.queue_files:find_typed",
        replace("len(A) == 1", "False"),
        caught_by=f"{LOOKING}test_why_takes_the_beginning_of_an_id_and_without_one_the_newest",
    ),
    Mutant(
        "the default channel is another one",
        "schemas/config/king.schema.json",
        Text('"default": "kingdom"', '"default": "general"'),
        caught_by="tests/court/king/test_job.py::test_the_default_channel",
    ),
    Mutant(
        "that Slack takes no token is told where nobody hears it",
        "kingdom.court.envoy.locked_out:LockedOut._another",
        body("return 'slack'"),
        caught_by="tests/court/envoy/test_slack.py::test_people_are_told_elsewhere_and_once_that_slack_does_not_take_our_token",
    ),
    Mutant(
        "that Slack takes no token is never told a second time",
        "kingdom.court.envoy.locked_out:LockedOut.over",
        body("pass"),
        caught_by="tests/court/envoy/test_slack.py::test_people_are_told_elsewhere_and_once_that_slack_does_not_take_our_token",
    ),
    Mutant(
        "a source that refuses us again is not told of",
        "kingdom.court.chamberlain.job:ChamberlainJob._tell_of_watchers",
        drop("_alerts.forget"),
        caught_by="tests/court/chamberlain/test_alerts.py::test_a_source_that_refuses_us_is_told_once_until_it_lets_us_in_again",
    ),
    Mutant(
        "each failure of a service is said",
        "kingdom.court.sentinel.watch:WatcherTurns._say_trouble",
        replace("self._trouble != A", "True"),
        caught_by="tests/faults/test_outside_table.py",
    ),
    Mutant(
        "a new session does not know what its conversation was about",
        "kingdom.court.soldiers.prepare:_first_of",
        body("return None"),
        caught_by="tests/court/soldiers/test_prepare.py::"
        "test_whoever_goes_on_in_a_new_session_knows_the_question_and_what_it_was_about",
    ),
    Mutant(
        "what another try cannot change is tried again",
        "kingdom.court.soldiers.results:read",
        replace("A == 'failed' and B", "A == 'failed'"),
        caught_by="tests/court/soldiers/test_results.py::test_what_another_try_cannot_change_is_not_tried_again",
    ),
    Mutant(
        "what is over is never forgotten",
        "kingdom.court.chamberlain.anomalies:tell",
        drop("alerts.forget_all_but"),
        caught_by="tests/court/chamberlain/test_anomalies.py::test_a_success_ends_a_row_of_failures_and_the_next_row_is_told",
    ),
    Mutant(
        "spending is forgotten with the file of those who spent",
        "kingdom.court.chamberlain.ledger:_without_runs",
        replace("(known['usd'], known['tokens']) > (own['usd'], own['tokens'])", "False"),
        caught_by="tests/court/chamberlain/test_ledger.py::test_a_file_of_the_generals_that_began_anew_takes_nothing_back",
    ),
    Mutant(
        "a run that is reported twice costs twice",
        "kingdom.court.soldiers.budgets:_is_known",
        body("return False"),
        caught_by="tests/court/soldiers/test_budgets.py::test_a_run_that_is_reported_again_after_a_kill_costs_once",
    ),
    Mutant(
        "schedules may use the reserve",
        "kingdom.court.soldiers.budgets:Budgets._bound",
        body("return float(self.rules[name])"),
        caught_by="tests/court/soldiers/test_budgets.py::test_the_reserve_is_for_what_people_ask",
    ),
    Mutant(
        "a report that is sent again is another message",
        "kingdom.court.chamberlain.reports:Reports._send",
        replace("letter.get('of') != A", "True"),
        caught_by="tests/court/chamberlain/test_reports.py::test_a_report_that_could_not_be_sent_keeps_its_id_and_its_words",
    ),
    Mutant(
        "a share is written as percent",
        "kingdom.court.upkeep.metrics:_used",
        replace("percent / 100", "percent"),
        caught_by="tests/court/upkeep/test_metrics.py",
    ),
    Mutant(
        "systemd is told ready before every role works",
        "kingdom.cli.foreground:states",
        replace("[] if found.not_up else A", "A"),
        caught_by="tests/cli/test_foreground.py::test_ready_is_said_of_all_and_well_while_none_hangs",
    ),
]
KNOWN = {mutant.name: mutant for mutant in MUTANTS}
PARTS = ("bin", "config/default", "docs", "generals", "kingdom", "schemas", "scripts", "tests", "deploy")


def checkout() -> Path:
    """Return a copy of the checkout, in a repository of its own: some tests ask git what belongs to it."""
    folder = trees.new_folder()
    for part in PARTS:
        shutil.copytree(trees.CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc"))
    for file in trees.CHECKOUT.glob("[!.]*.*"):
        if file.is_file():
            shutil.copy(file, folder)
    shutil.copy(trees.CHECKOUT / ".gitignore", folder)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def is_seen(mutant: Mutant) -> bool:
    """Return whether the test fails that a defect is for."""
    folder, home = checkout(), trees.new_folder()
    path, text = changes.changed(folder, mutant.place, mutant.change)
    path.write_text(text)
    argv = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.caught_by]
    done = trees.run(folder, home, argv, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    print(f"{mutant.name}: {done.stdout.splitlines()[-3:] if done.returncode else 'NOT CAUGHT'}")
    return done.returncode == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("name", [mutant.name for mutant in mutants.chosen(MUTANTS)])
def test_a_seeded_defect_that_breaks_a_promise_is_caught(name: str) -> None:
    assert is_seen(KNOWN[name]), KNOWN[name].caught_by
