/** The page's words in the language of whoever looks at it. */

import { isTask } from "./own.js";
import { en } from "./words-en.js";
import { ko } from "./words-ko.js";

const KEY = "kingdom.language";
const LANGUAGES = { en, ko };
/** Each language by its own name. */
export const NAMES = { en: "English", ko: "한국어" };

export function language() {
  const chosen = localStorage.getItem(KEY);
  if (chosen in LANGUAGES) return chosen;
  return navigator.language.startsWith("ko") ? "ko" : "en";
}

export function choose(name) {
  localStorage.setItem(KEY, name);
}

/** Return a text; where it is a function, of these values. */
export function t(key, ...values) {
  const text = LANGUAGES[language()][key];
  if (text === undefined) throw new Error(`no text for ${key}`);
  return typeof text === "function" ? text(...values) : text;
}

/** Return the page's text for a refusal or answer of the gateway; its own where the page has none. */
export function said(why) {
  return LANGUAGES[language()].answers[why] ?? why;
}

const FIELDS = { current: "passwordNow", email: "email", name: "roomName", new: "passwordNew", password: "password" };

/** Return what is wrong with each field that the gateway refuses, or with the whole. */
export function refusal({ message, errors }) {
  const told = errors?.map((error) => `${error.path in FIELDS ? t(FIELDS[error.path]) : error.path}: ${said(error.message)}`);
  return told?.length ? told.join("; ") : said(message);
}

/** Return a sentence of the kingdom: what it says as data in the reader's language, else as it came. */
export function sentence(text, says) {
  const { sentences } = LANGUAGES[language()];
  const inner = (value) => (value?.code ? tell(value) : value);
  const tell = ({ code, values }) => {
    const told = Object.entries(values).map(([name, value]) => [name, inner(value)]);
    return sentences[code](Object.fromEntries(told), { full, lasting });
  };
  return says?.code in sentences ? tell(says) : text;
}

const formats = new Map();

function format(options) {
  const key = language() + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat(language(), options));
  return formats.get(key);
}

export function clock(moment) {
  return format({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(new Date(moment));
}

export function day(moment) {
  const date = new Date(moment);
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(moment).setHours(0, 0, 0, 0)) / 86_400_000);
  if (days === 0) return t("today");
  if (days === 1) return t("yesterday");
  const year = date.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return format({ weekday: "long", day: "numeric", month: "long", ...year }).format(date);
}

export function full(moment) {
  const year = new Date(moment).getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return format({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...year }).format(new Date(moment));
}

/** Return a moment as short as it can be told in a list. */
export function brief(moment) {
  if (!moment) return "";
  const days = (new Date().setHours(0, 0, 0, 0) - new Date(moment).setHours(0, 0, 0, 0)) / 86_400_000;
  if (days < 1) return clock(moment);
  return format(days < 7 ? { weekday: "short" } : { day: "numeric", month: "short" }).format(new Date(moment));
}

/** Return how long something takes or has taken. */
export function lasting(seconds) {
  if (seconds < 90) return t("seconds", Math.max(0, Math.round(seconds)));
  if (seconds < 5400) return t("minutes", Math.round(seconds / 60));
  if (seconds < 129_600) return t("hours", Math.round(seconds / 3600));
  return t("days", Math.round(seconds / 86_400));
}

/** Return what a room is called; of a task's room what it is about, and apart from that the task's id. */
export function roomName(room) {
  const { name } = room;
  const [, task = "", about = name] = (isTask(room) && /^(task-\d{8}-\d+): (.+)$/s.exec(name)) || [];
  return [about, task];
}
