"""Remind people every day of an open question, after a week by an alert. Questions never expire."""

from __future__ import annotations

from kingdom.envoy.conversations import ALERT_AFTER_DAYS, Conversations, Waiting
from kingdom.records.messages import Message, alert
from kingdom.runtime.role import Services
from kingdom.times import stamp
from kingdom.words import count, one_line


class Reminders:
    def __init__(self, services: Services, conversations: Conversations) -> None:
        self._services = services
        self._conversations = conversations

    def write_due(self) -> None:
        """Write a reminder for each question that has waited for another day; an id is used once."""
        overdue = list(self._conversations.overdue())
        messages = [message for one in overdue for message in self._messages(one)]
        queue = self._services.queues.messages
        if messages:
            queue.create([message for message in messages if not queue.was_made(message.id)])
        for one in overdue:
            self._conversations.note_reminder(one.task, one.days)
        self._conversations.save()

    def _messages(self, one: Waiting) -> list[Message]:
        now, day = stamp(self._services.clock()), one.asked_at[:10].replace("-", "")
        waits = f"has waited for an answer for {count(one.days, 'day')}"
        reminder = Message(
            id=f"msg-{day}-envoy-waits-{one.task[:150]}-{one.days}",
            type="thread_update",
            task_id=one.task,
            channel=one.thread.room,
            thread_ts=one.thread.thread,
            urgency="normal",
            content=f"[reminder] this question {waits}: {one_line(one.text.removeprefix('[question] '), 300)}",
            context={},
            source_ref={"source": one.thread.channel},
            created_at=now,
            status="pending",
            dedup_key=f"{one.task}:reminder:{one.days}",
        )
        if not one.reminded_days < ALERT_AFTER_DAYS <= one.days:
            return [reminder]
        text = f"the question of {one.task} {waits}: `kingdom say --answer {one.task} …` answers it"
        return [reminder, alert(f"{reminder.id}-alert", text, None, now)]
