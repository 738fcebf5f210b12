"""Remind people every day of an open question, after a week by an alert. Questions never expire."""

from __future__ import annotations

from kingdom.base.records.messages import Message, alert
from kingdom.base.runtime.role import Services
from kingdom.base.times import stamp
from kingdom.base.words import count, one_line
from kingdom.court.envoy.conversations import ALERT_AFTER_DAYS, Conversations, WaitingQuestion


class Reminders:
    def __init__(self, services: Services, conversations: Conversations) -> None:
        self._services = services
        self._conversations = conversations

    def write_due(self) -> None:
        """Write a reminder for each question that has waited for another day; an id is used once."""
        overdue = list(self._conversations.overdue())
        messages = [message for question in overdue for message in self._messages(question)]
        queue = self._services.queues.messages
        if messages:
            queue.create([message for message in messages if not queue.was_made(message.id)])
        for question in overdue:
            self._conversations.note_reminder(question.task, question.days)
        self._conversations.files.save()

    def _messages(self, question: WaitingQuestion) -> list[Message]:
        now, day = stamp(self._services.clock()), question.asked_at[:10].replace("-", "")
        asked = one_line(question.text.removeprefix("[question] "), 300)  # "" where another envoy has asked
        waits = f"has waited for an answer for {count(question.days, 'day')}"
        reminder = Message(
            id=f"msg-{day}-envoy-waits-{question.task[:150]}-{question.days}",
            type="thread_update",
            task_id=question.task,
            channel=question.thread.room,
            thread_ts=question.thread.thread,
            content=f"[reminder] this question {waits}{asked and ': '}{asked}",
            source_ref={"source": question.thread.channel},
            created_at=now,
            dedup_key=f"{question.task}:reminder:{question.days}",
        )
        if not question.reminded_days < ALERT_AFTER_DAYS <= question.days:
            return [reminder]
        text = f"the question of {question.task} {waits}: `kingdom say --answer {question.task} …` answers it"
        return [reminder, alert(f"{reminder.id}-alert", text, None, now)]
