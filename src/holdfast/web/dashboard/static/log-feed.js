// The lines of one run as they are written: a stream, a watchdog for a silent one, and polling while there is none.
// Used by log-worker.js for all tabs of a browser, and by a page itself where there are no shared workers.

const PAGE = 1000;
const RETRY_MS = 2000;
const PACED_MS = 2000;
const REQUEST_MS = 30000;

/** Tells `{type: "lines", lines}`, `{type: "mode", mode}` (live, paced, polling) and at last `{type: "end", reason}`. */
export class Feed {
  #tell;
  #turns;
  #stopping = new AbortController();
  #wake = () => {};

  /**
   * @param where {api, job, run}
   * @param after the number of the last line that is known already
   * @param times {poll, silent} in seconds
   * @param turns take() says whether another stream may be opened now, give() that one was closed
   */
  constructor(where, after, times, turns, tell) {
    this.run = where.run;
    this.runs = `${where.api}/jobs/${encodeURIComponent(where.job)}/runs`;
    this.lines = `${this.runs}/${where.run}/logs`;
    this.after = after;
    this.mode = "connecting";
    this.times = times;
    this.#turns = turns;
    this.#tell = tell;
    this.#go();
  }

  stop() {
    this.#stopping.abort();
    this.#wake();
  }

  async #go() {
    let failures = 0;
    while (!this.#stopped) {
      let end = null;
      let pause = PACED_MS;
      if (this.#turns.take()) {
        const before = this.after;
        const heard = { any: false };
        try {
          end = await this.#stream(heard);
        } finally {
          this.#turns.give();
        }
        failures = heard.any || this.after > before ? 0 : failures + 1;
        if (!end && !this.#stopped) this.#become("polling");
        pause = Math.min(RETRY_MS * 2 ** failures, this.times.poll * 1000);
      } else {
        this.#become("paced");
      }
      end ??= await this.#poll();
      if (this.#stopped) return;
      if (end) {
        this.#tell({ type: "end", reason: end });
        return;
      }
      await this.#rest(pause);
    }
  }

  get #stopped() {
    return this.#stopping.signal.aborted;
  }

  #become(mode) {
    if (this.mode === mode) return;
    this.mode = mode;
    this.#tell({ type: "mode", mode });
  }

  #take(lines) {
    const fresh = lines.filter((line) => line.no > this.after);
    if (!fresh.length) return;
    this.after = fresh[fresh.length - 1].no;
    this.#tell({ type: "lines", lines: fresh });
  }

  #rest(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.#stopped) this.#wake();
    });
  }

  /** Why it has ended for good, or null where it was broken off. */
  async #stream(heard) {
    const cut = new AbortController();
    const abort = () => cut.abort();
    this.#stopping.signal.addEventListener("abort", abort);
    let watchdog = setTimeout(abort, this.times.silent * 1000);
    try {
      const answer = await fetch(`${this.lines}/stream?after=${this.after}`, { signal: cut.signal, cache: "no-store" });
      if (!answer.ok) return await refusal(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return null;
        clearTimeout(watchdog);
        watchdog = setTimeout(abort, this.times.silent * 1000);
        heard.any = true;
        this.#become("live");
        const pieces = (rest + value).split("\n\n");
        rest = pieces.pop();
        const end = this.#hear(pieces.map(parse));
        if (end) return end;
      }
    } catch {
      return null;
    } finally {
      clearTimeout(watchdog);
      this.#stopping.signal.removeEventListener("abort", abort);
      cut.abort();
    }
  }

  #hear(events) {
    const lines = [];
    let end = null;
    for (const { name, data } of events) {
      if (data === null) continue;
      if (name === "end") end = data.reason ?? "ended";
      else if (name === "message") lines.push(data);
    }
    this.#take(lines);
    return end;
  }

  async #poll() {
    try {
      const answer = await this.#get(this.runs);
      if (!answer.ok) return await refusal(answer);
      const run = (await answer.json()).items.find((one) => one.run_no === this.run);
      if (!run) return null; // it has not begun
      const refused = await this.#read();
      return refused ?? (run.outcome === "running" ? null : "ended");
    } catch {
      return null;
    }
  }

  async #read() {
    for (;;) {
      const answer = await this.#get(`${this.lines}?after=${this.after}&limit=${PAGE}`);
      if (!answer.ok) return await refusal(answer);
      const page = await answer.json();
      this.#take(page.items);
      if (page.next_after === null) return null;
    }
  }

  #get(address) {
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(REQUEST_MS)]);
    return fetch(address, { signal, cache: "no-store" });
  }
}

/** Without a shared worker: every page for itself. */
export const NO_TURNS = { take: () => true, give() {} };

function parse(piece) {
  let name = "message";
  const data = [];
  for (const line of piece.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  return { name, data: data.length ? JSON.parse(data.join("\n")) : null };
}

/** A refusal that stays one: who is not let in any more, or asks for what is not there, need not ask again. */
async function refusal(answer) {
  if (answer.status === 401 || answer.status === 403) return "access_ended";
  if (answer.status !== 404) return null;
  return (await codeOf(answer)) === "run_not_found" ? "no_run" : "access_ended";
}

async function codeOf(answer) {
  try {
    return (await answer.json()).code;
  } catch {
    return null;
  }
}
