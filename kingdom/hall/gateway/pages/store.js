/** One store: what is known, and who wants to hear when it changes. */

export class Store {
  #listeners = new Map();
  #changed = new Set();

  /** Call a function soon after any of these topics has changed; return how to end that. */
  on(topics, listener) {
    for (const topic of [topics].flat()) {
      if (!this.#listeners.has(topic)) this.#listeners.set(topic, new Set());
      this.#listeners.get(topic).add(listener);
    }
    return () => {
      for (const topic of [topics].flat()) this.#listeners.get(topic)?.delete(listener);
    };
  }

  /** Note that a topic has changed. Changes of one moment are told together. */
  tell(topic) {
    if (!this.#changed.size) queueMicrotask(() => this.#flush());
    this.#changed.add(topic);
  }

  #flush() {
    const topics = [...this.#changed];
    this.#changed.clear();
    const listeners = new Set(topics.flatMap((topic) => [...(this.#listeners.get(topic) ?? [])]));
    for (const listener of listeners) listener();
  }
}
