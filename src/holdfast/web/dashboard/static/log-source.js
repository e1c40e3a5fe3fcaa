// Where a page's lines come from: the worker that all tabs share, or a feed of the page's own.

import { Feed, NO_TURNS } from "./log-feed.js";

let port = null;
let shared = typeof SharedWorker !== "undefined";
/** Key -> the sources of this page that listen to it. */
const listening = new Map();

function workerPort() {
  if (port || !shared) return port;
  try {
    const worker = new SharedWorker(new URL("./log-worker.js", import.meta.url), { type: "module", name: "holdfast-logs" });
    worker.onerror = withoutWorker;
    port = worker.port;
    port.onmessage = ({ data }) => {
      for (const source of [...(listening.get(data.key) ?? [])]) source.hear(data);
    };
  } catch {
    shared = false;
  }
  return port;
}

/** Its script did not load: each page goes on by itself. */
function withoutWorker() {
  shared = false;
  port = null;
  for (const sources of listening.values()) for (const source of sources) source.open();
}

export class Source {
  #where;
  #times;
  #tell;
  #feed = null;
  #key;
  #after;

  constructor(where, after, times, tell) {
    this.#where = where;
    this.#times = times;
    this.#tell = tell;
    this.#after = after;
    this.#key = `${new URL(where.api, location.href)}|${where.job}|${where.run}`;
    addEventListener("pagehide", this);
    addEventListener("pageshow", this);
    document.addEventListener("visibilitychange", this);
    this.open();
  }

  open() {
    const worker = workerPort();
    if (worker) {
      if (!listening.has(this.#key)) listening.set(this.#key, new Set());
      listening.get(this.#key).add(this);
      const api = new URL(this.#where.api, location.href).href;
      worker.postMessage({
        type: "join", key: this.#key, where: { ...this.#where, api }, after: this.#after, times: this.#times,
      });
    } else if (!this.#feed && !document.hidden) {
      this.#feed = new Feed(this.#where, this.#after, this.#times, NO_TURNS, (news) => this.hear(news));
    }
  }

  hear(news) {
    if (news.type === "lines") this.#after = Math.max(this.#after, news.lines[news.lines.length - 1].no);
    this.#tell(news);
  }

  close() {
    removeEventListener("pagehide", this);
    removeEventListener("pageshow", this);
    document.removeEventListener("visibilitychange", this);
    this.#pause();
  }

  handleEvent(event) {
    if (event.type === "pagehide") this.#pause();
    else if (event.type === "pageshow" && event.persisted) this.open();
    else if (event.type === "visibilitychange" && !port) document.hidden ? this.#pause() : this.open(); // six connections in all
  }

  #pause() {
    this.#feed?.stop();
    this.#feed = null;
    const sources = listening.get(this.#key);
    if (sources?.delete(this) && !sources.size) {
      listening.delete(this.#key);
      port?.postMessage({ type: "leave", key: this.#key });
    }
  }
}
