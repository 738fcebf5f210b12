/** What is the kingdom's own: its user and its throne room have the same ids in every hall. */

export const KINGDOM = "78561200-efa7-4d6a-b069-15ea9f43e15b";
export const THRONE_ROOM = "ceeea446-6b0a-48e3-8493-8fb329d500cc";

/** Return whether a room is surely the kingdom's: by its kind, or because the kingdom is in it. */
export function isOwn({ id, kind, members }) {
  return kind === undefined ? id === THRONE_ROOM || Boolean(members?.some(isKingdom)) : kind !== null;
}

/** Return whether a room is a task's. Others may be called so too: where no kind is told, they are known by their members. */
export function isTask({ kind, name, members }) {
  return kind === "task" || (kind === undefined && /^task-\d{8}-\d+: /.test(name) && (!members || members.some(isKingdom)));
}

/** Return whether a member is the kingdom, although others may be called so. */
export function isKingdom({ userId }) {
  return userId === KINGDOM;
}
