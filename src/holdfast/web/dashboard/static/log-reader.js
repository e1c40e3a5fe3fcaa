// Which lines are in the page: the newest, those around a line, further ones on demand, and live ones as they come.
// All of it happens one after the other: live lines wait while others are read.

import { LINES_MAX } from "./log-window.js";

const PAGE = 1000;
const AROUND = 300;

export class Reader {
  /** Number of the newest line there is. */
  newest = 0;
  /** Whether it is in the page. */
  atEnd = true;
  /** Whether there are lines before those in the page. */
  more = false;
  #window;
  #filter;
  #follow;
  #ask;
  #told;
  #run = 0;
  #readRun = 0;
  #turn = 0;
  #work = Promise.resolve();
  #busy = false;
  #waiting = [];
  #flushing = false;

  /** `ask(query)` answers with lines; `told`: {painted, added}. */
  constructor(window, filter, follow, ask, told) {
    this.#window = window;
    this.#filter = filter;
    this.#follow = follow;
    this.#ask = ask;
    this.#told = told;
  }

  /** From now on the lines are those of another run. */
  begin(run) {
    this.#run = run;
    this.#waiting = [];
  }

  loadNewest() {
    return this.#alone(() => this.#readNewest());
  }

  /** Answers with the line to look at, null where another request was faster. */
  loadAround(no) {
    return this.#alone(() => this.#readAround(no));
  }

  loadEarlier() {
    return this.#once(() => this.#readEarlier());
  }

  loadLater() {
    return this.#once(() => this.#readLater());
  }

  firstAfter(no, level) {
    return this.#page({ after: no, level, limit: 1 }, false);
  }

  // -- reading --------------------------------------------------------------------------------------------------------

  #page(more, filtered = true) {
    const asked = { limit: PAGE, ...more };
    return this.#ask(filtered ? this.#filter.query(asked) : new URLSearchParams(asked));
  }

  #alone(work) {
    const done = this.#work.then(work);
    this.#work = done.catch((error) => reportError(error));
    return this.#work;
  }

  /** Scrolling asks for more again and again: once is enough. */
  async #once(work) {
    if (this.#busy) return;
    this.#busy = true;
    await this.#alone(work);
    this.#busy = false;
  }

  async #readNewest() {
    const turn = (this.#turn += 1);
    const known = this.#newestIfSame();
    let items;
    if (this.#filter.on) {
      // Which is the newest of all is asked first: the live lines go on from there.
      const [last] = await this.#page({ newest: true, limit: 1 }, false);
      this.newest = Math.max(known, last?.no ?? 0);
      items = await this.#page({ newest: true, before: this.newest + 1 });
    } else {
      items = await this.#page({ newest: true });
      this.newest = Math.max(known, items.at(-1)?.no ?? 0);
    }
    if (turn !== this.#turn) return;
    this.#show(items);
    this.more = items.length === PAGE;
    this.atEnd = true;
    this.#told.painted();
    if (this.#follow.on) this.#follow.toEnd();
  }

  #newestIfSame() {
    const same = this.#readRun === this.#run;
    this.#readRun = this.#run;
    return same ? this.newest : 0;
  }

  async #readAround(no) {
    const turn = (this.#turn += 1);
    const after = Math.max(0, no - AROUND);
    const [items, newest] = await Promise.all([this.#page({ after }), this.#page({ newest: true, limit: 1 })]);
    if (turn !== this.#turn) return null;
    this.newest = Math.max(this.#newestIfSame(), newest.at(-1)?.no ?? 0);
    if (!items.length) {
      await this.#readNewest();
      return null;
    }
    this.#show(items);
    this.more = after > 0;
    this.atEnd = this.#window.last >= this.newest;
    this.#told.painted();
    return Math.min(no, this.#window.last);
  }

  #show(items) {
    this.#window.clear();
    this.#window.append(items);
  }

  async #readEarlier() {
    const first = this.#window.first;
    if (first === null || !this.more) return;
    const items = await this.#page({ before: first, newest: true });
    this.more = items.length === PAGE && items[0].no > 1;
    this.#follow.keep(this.#window.element(first), () => {
      this.#window.prepend(items);
      if (!this.#follow.on && this.#window.dropNewest()) this.atEnd = false;
      this.#told.painted();
    });
  }

  async #readLater() {
    if (this.atEnd) return;
    const items = await this.#page({ after: this.#window.last ?? 0 });
    this.#window.append(items);
    if (!this.#filter.on) this.newest = Math.max(this.newest, this.#window.last ?? 0);
    if (items.length < PAGE) this.atEnd = true;
    if (this.#window.dropOldest()) this.more = true;
    this.#told.painted();
  }

  // -- live lines -----------------------------------------------------------------------------------------------------

  /** `before`: where there are no lines, the number that the next one will have. */
  take(lines, before = null) {
    this.#waiting.push({ lines, before });
    this.afterLines(() => {});
  }

  /** Once all lines that have come are in the page. They come in batches, one a frame. */
  afterLines(then) {
    this.#waiting.push({ then });
    if (this.#flushing) return;
    this.#flushing = true;
    const flush = () => {
      this.#flushing = false;
      this.#alone(() => this.#flush());
    };
    if (document.hidden) setTimeout(flush, 100);
    else requestAnimationFrame(flush);
  }

  async #flush() {
    const run = this.#run;
    while (this.#waiting.length) {
      const { lines = [], before = null, then } = this.#waiting.shift();
      const next = lines[0]?.no ?? before;
      if (next !== null && next > this.newest + 1) {
        // Somebody else's cursor is ahead of ours: what lies between is read.
        for (let after = this.newest; after < next - 1; ) {
          const between = await this.#page({ after, before: next }, false);
          if (run !== this.#run || !between.length) break;
          this.#add(between);
          after = between.at(-1).no;
        }
        if (run !== this.#run) return;
      }
      this.#add(lines);
      then?.();
    }
  }

  #add(lines) {
    const fresh = lines.filter((line) => line.no > this.newest);
    if (!fresh.length) return;
    this.newest = fresh.at(-1).no;
    const matching = this.#filter.on ? fresh.filter((line) => this.#filter.matches(line)) : fresh;
    if (this.atEnd && !this.#follow.on && this.#window.size + matching.length > LINES_MAX) this.atEnd = false;
    if (this.atEnd) this.#window.append(matching);
    if (this.#follow.on) {
      if (this.#window.dropOldest()) this.more = true;
      this.#follow.toEnd();
    }
    this.#told.added(matching);
    this.#told.painted();
  }
}
