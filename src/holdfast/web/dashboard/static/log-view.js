// <log-view job="…" run="2" api="/api" state="running" actions="cancel retry">: the log of a run, live.
// What the server wrote inside is shown until this takes over, and where there are no scripts. Dispatches `log-end` when the run
// that is watched has ended, or may not be watched any more; `log-run` when another run is shown; `log-state` when the job's
// state has changed. Styles: log-view.css.

import { LINES_MAX, LogWindow } from "./log-window.js";
import { clock, duration } from "./log-lines.js";
import { Source } from "./log-source.js";

const PAGE = 1000;
const AROUND = 300;
const NEAR_END_PX = 40;
const SLOW_SECONDS = 300;
const JOB_MS = 15000;
const ANNOUNCE_MS = 5000;
const SEARCH_MS = 300;
const LEVELS = ["info", "success", "warning", "error"];
const ENDED = new Set(["completed", "failed", "cancelled"]);
const ACTIVE = new Set(["queued", "scheduled", "retrying", "running", "cancelling"]);
const OUTCOMES = { running: "in progress", lost: "worker lost", released: "given back" };
const number = new Intl.NumberFormat("en").format;

const TEMPLATE = document.createElement("template");
TEMPLATE.innerHTML = `
<div class="lv-head">
  <span class="lv-state"></span>
  <label class="lv-run"><span class="lv-hidden">Attempt</span><select></select></label>
  <span class="lv-timer"></span>
  <span class="lv-slow" hidden>Taking longer than expected</span>
  <span class="lv-live" hidden></span>
  <button type="button" class="lv-act lv-cancel" hidden>Cancel</button>
  <button type="button" class="lv-act lv-retry" hidden>Retry</button>
</div>
<p class="lv-error" hidden><strong></strong> <span></span></p>
<p class="lv-note" role="status" hidden></p>
<div class="lv-tools">
  <input type="search" placeholder="Search the whole log" aria-label="Search the whole log" maxlength="200" spellcheck="false">
  <span class="lv-levels" role="group" aria-label="Show only these levels"></span>
  <span class="lv-files">Download <a class="lv-text" download>text</a> <a class="lv-ndjson" download>NDJSON</a></span>
</div>
<div class="lv-frame">
  <div class="lv-scroll" tabindex="0" role="log" aria-live="off">
    <button type="button" class="lv-earlier" hidden></button>
    <div class="lv-list"></div>
    <p class="lv-empty" hidden></p>
    <button type="button" class="lv-later" hidden></button>
  </div>
  <button type="button" class="lv-new" hidden></button>
</div>
<div class="lv-foot">
  <span class="lv-count"></span>
  <button type="button" class="lv-clear" hidden>Show all lines</button>
  <button type="button" class="lv-follow" aria-pressed="true">Follow</button>
  <span class="lv-keys">↑ ↓ lines · Enter details · E next error · End follow</span>
</div>
<p class="lv-hidden lv-said" role="status"></p>
<dialog class="lv-dialog"><p>Cancel this job?</p><div><button type="button" value="no">Keep it running</button>
<button type="button" value="yes" class="lv-danger">Cancel the job</button></div></dialog>`;

class LogView extends HTMLElement {
  static observedAttributes = ["state"];
  #ready = false;
  #job = null;
  #run = 0;
  #pinned = false;
  #source = null;
  #next = null;
  #window = null;
  #newest = 0;
  #atEnd = true;
  #more = false;
  #following = true;
  #unseen = 0;
  #unsaid = { lines: 0, errors: 0 };
  #levels = new Set();
  #search = "";
  #waiting = [];
  #flushing = false;
  #shown = 0;
  #work = Promise.resolve();
  #loadedRun = 0;
  #busy = false;
  #offset = 0;
  #scrollTop = 0;
  #timers = [];
  #ended = null;

  connectedCallback() {
    if (this.#ready) return this.#start();
    this.#ready = true;
    this.replaceChildren(TEMPLATE.content.cloneNode(true));
    this.#window = new LogWindow(this.#$(".lv-list"));
    for (const level of LEVELS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = level;
      button.dataset.level = level;
      button.setAttribute("aria-pressed", "false");
      this.#$(".lv-levels").append(button);
    }
    this.#listen();
    this.#start();
  }

  disconnectedCallback() {
    this.#stopSources();
    removeEventListener("hashchange", this.#onHash);
    for (const timer of this.#timers.splice(0)) clearInterval(timer);
  }

  /** The page tells that something was done to the job. */
  attributeChangedCallback(name, before, now) {
    if (this.#job && before !== now && now !== this.#job.state) this.refresh();
  }

  // -- beginning ------------------------------------------------------------------------------------------------------

  #$(selector) {
    return this.querySelector(selector);
  }

  get #api() {
    return this.getAttribute("api") ?? "/api";
  }

  get #address() {
    return `${this.#api}/jobs/${encodeURIComponent(this.getAttribute("job"))}`;
  }

  get #times() {
    return { poll: Number(this.dataset.poll ?? 30), silent: Number(this.dataset.silent ?? 30) };
  }

  async #start() {
    addEventListener("hashchange", this.#onHash);
    this.#timers.push(setInterval(() => this.#tick(), 1000));
    this.#timers.push(setInterval(() => document.hidden || this.#over || this.refresh(), JOB_MS));
    this.#timers.push(setInterval(() => this.#announce(), ANNOUNCE_MS));
    await this.refresh();
    if (!this.#job) return;
    const asked = Number(this.getAttribute("run"));
    const newest = this.#newestRun;
    // A run that was going on when the page was made is the newest of then: another may have begun since.
    this.#pinned = Boolean(asked) && asked !== newest && !ACTIVE.has(this.getAttribute("state"));
    await this.#show(this.#pinned ? asked : newest);
    this.dataset.ready = "";
  }

  /** The run that is going on or, of a job that waits, the newest there was: its log is worth reading until the next begins. */
  get #newestRun() {
    return Math.max(1, this.#job.run_no);
  }

  get #over() {
    return this.#ended === "access_ended" || !this.#job || ENDED.has(this.#job.state);
  }

  get #runs() {
    return this.#job?.runs ?? [];
  }

  get #thisRun() {
    return this.#runs.find((run) => run.run_no === this.#run) ?? null;
  }

  async refresh() {
    const answer = await this.#ask(this.#address);
    if (!answer) return;
    const before = this.#job;
    this.#job = await answer.json();
    const date = Date.parse(answer.headers.get("date"));
    if (date && Math.abs(date - Date.now()) > 2000) this.#offset = date - Date.now();
    if (before && before.state !== this.#job.state) this.#emit("log-state", { state: this.#job.state });
    if (this.#run) {
      this.#paintHead();
      this.#goOn();
    }
  }

  /** An answer, or null where there is none; who may not ask any more is told so, once. */
  async #ask(address, options) {
    try {
      const answer = await fetch(address, { cache: "no-store", ...options });
      if (answer.ok) return answer;
      if (answer.status === 404 && (await answer.clone().json()).code === "run_not_found") return null;
      if ([401, 403, 404].includes(answer.status) && !options) this.#end("access_ended");
      else this.#note((await answer.json()).detail ?? `The server answered ${answer.status}.`);
    } catch {
      if (!this.#source) this.#note("The server cannot be reached.");
    }
    return null;
  }

  // -- which run ------------------------------------------------------------------------------------------------------

  async #show(run, around = lineOfHash()) {
    this.#stopSources();
    this.#run = run;
    this.#ended = null;
    this.#waiting = [];
    this.#note("");
    this.#paintHead();
    this.#setFollowing(around === null);
    await (around === null ? this.#loadNewest() : this.#loadAround(around));
    if (this.#run !== run) return;
    this.#paintHead();
    this.#goOn();
  }

  /** Watches what is to be watched: this run while it goes on, else the next one, where the job is going to have one. */
  #goOn() {
    if (this.#over && this.#ended !== null) return;
    const run = this.#thisRun;
    const waits = !run && !ENDED.has(this.#job.state) && this.#run > this.#job.run_no;
    if (run?.outcome === "running" || waits) {
      this.#source ??= this.#follow(this.#run, this.#newest, (news) => this.#hear(news));
      return;
    }
    if (!this.#source) this.#mode("past");
    if (this.#pinned || ENDED.has(this.#job.state) || this.#source) return;
    if (this.#job.state === "running" && this.#job.run_no > this.#run) {
      this.#show(this.#job.run_no, null);
      return;
    }
    const next = this.#job.run_no + 1;
    this.#next ??= this.#follow(next, 0, (news) => {
      if (news.type === "lines" || news.type === "end") {
        this.#next?.close();
        this.#next = null;
        if (news.type === "lines" || news.reason === "ended") this.refresh().then(() => this.#show(next, null));
        else if (news.reason === "access_ended") this.#end("access_ended");
        else this.refresh();
      }
    });
  }

  #follow(run, after, tell) {
    const where = { api: this.#api, job: this.getAttribute("job"), run };
    let source = null;
    source = new Source(where, after, this.#times, (news) => {
      if (source === null || source === this.#source || source === this.#next) tell(news);
    });
    return source;
  }

  #stopSources() {
    this.#source?.close();
    this.#next?.close();
    this.#source = this.#next = null;
  }

  #hear(news) {
    if (news.type === "mode" || news.type === "joined") this.#mode(news.mode);
    if (news.type === "joined" && news.after > this.#newest) this.#take([], news.after + 1);
    if (news.type === "lines") this.#take(news.lines);
    if (news.type === "end") this.#afterLines(() => this.#end(news.reason));
  }

  async #end(reason) {
    const run = this.#run;
    this.#stopSources();
    if (reason === "access_ended") {
      if (this.#ended === reason) return;
      this.#ended = reason;
      this.#mode("gone");
      this.#note("You may no longer watch this log. Sign in again, or ask an owner of the organization.");
    } else {
      this.#ended = reason;
      this.#mode("past");
      await this.refresh();
    }
    this.#emit("log-end", { reason, run, state: this.#job?.state ?? null });
  }

  #emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { bubbles: true, detail }));
  }

  // -- reading --------------------------------------------------------------------------------------------------------

  get #filtered() {
    return this.#levels.size > 0 || this.#search !== "";
  }

  #query(more = {}) {
    const query = new URLSearchParams(more);
    for (const level of this.#levels) query.append("level", level);
    if (this.#search) query.set("search", this.#search);
    return query;
  }

  async #page(more, filtered = true) {
    if (!this.#thisRun && this.#job.run_no < this.#run) return []; // it has not begun
    const query = filtered ? this.#query({ limit: PAGE, ...more }) : new URLSearchParams({ limit: PAGE, ...more });
    const answer = await this.#ask(`${this.#address}/runs/${this.#run}/logs?${query}`);
    return answer ? (await answer.json()).items : [];
  }

  /** What changes the lines in the page happens one after the other: live lines wait while others are read. */
  #alone(work) {
    this.#work = this.#work.then(work).catch((error) => reportError(error));
    return this.#work;
  }

  #loadNewest() {
    return this.#alone(() => this.#readNewest());
  }

  async #readNewest() {
    const turn = (this.#shown += 1);
    const known = this.#newestIfSame();
    let items;
    if (this.#filtered) {
      // Which is the newest of all is asked first: the live lines go on from there.
      const [last] = await this.#page({ newest: true, limit: 1 }, false);
      this.#newest = Math.max(known, last?.no ?? 0);
      items = await this.#page({ newest: true, before: this.#newest + 1 });
    } else {
      items = await this.#page({ newest: true });
      this.#newest = Math.max(known, items.at(-1)?.no ?? 0);
    }
    if (turn !== this.#shown) return;
    this.#window.clear();
    this.#window.append(items);
    this.#more = items.length === PAGE;
    this.#atEnd = true;
    this.#paintLines();
    if (this.#following) this.#toEnd();
  }

  #newestIfSame() {
    const same = this.#loadedRun === this.#run;
    this.#loadedRun = this.#run;
    return same ? this.#newest : 0;
  }

  #loadAround(no) {
    return this.#alone(() => this.#readAround(no));
  }

  async #readAround(no) {
    const turn = (this.#shown += 1);
    if (this.#filtered) this.#clearFilter();
    const after = Math.max(0, no - AROUND);
    const [items, newest] = await Promise.all([this.#page({ after }), this.#page({ newest: true, limit: 1 })]);
    if (turn !== this.#shown) return;
    this.#newest = Math.max(this.#newestIfSame(), newest.at(-1)?.no ?? 0);
    if (!items.length) return this.#readNewest();
    this.#window.clear();
    this.#window.append(items);
    this.#more = after > 0;
    this.#atEnd = this.#window.last >= this.#newest;
    this.#setFollowing(false);
    this.#paintLines();
    this.#mark(Math.min(no, this.#window.last));
  }

  /** Scrolling asks for more again and again: once is enough. */
  async #once(work) {
    if (this.#busy) return;
    this.#busy = true;
    await this.#alone(work);
    this.#busy = false;
  }

  async #readEarlier() {
    const first = this.#window.first;
    if (first === null || !this.#more) return;
    const items = await this.#page({ before: first, newest: true });
    this.#more = items.length === PAGE && items[0].no > 1;
    const scroll = this.#$(".lv-scroll");
    const anchor = this.#window.element(first);
    const before = anchor.getBoundingClientRect().top;
    scroll.classList.add("lv-still");
    this.#window.prepend(items);
    if (!this.#following && this.#window.dropNewest()) this.#atEnd = false;
    this.#paintLines();
    scroll.scrollTop += anchor.getBoundingClientRect().top - before;
    requestAnimationFrame(() => scroll.classList.remove("lv-still"));
  }

  async #readLater() {
    if (this.#atEnd) return;
    const items = await this.#page({ after: this.#window.last ?? 0 });
    this.#window.append(items);
    if (!this.#filtered) this.#newest = Math.max(this.#newest, this.#window.last ?? 0);
    if (items.length < PAGE) this.#atEnd = true;
    if (this.#window.dropOldest()) this.#more = true;
    this.#paintLines();
  }

  // -- live lines -----------------------------------------------------------------------------------------------------

  #take(lines, before = null) {
    this.#waiting.push({ lines, before });
    this.#afterLines(() => {});
  }

  /** Once all lines that have come are in the page. They come in batches, one a frame. */
  #afterLines(then) {
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
      if (next !== null && next > this.#newest + 1) {
        // Somebody else's cursor is ahead of ours: what lies between is read.
        for (let after = this.#newest; after < next - 1; ) {
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
    const fresh = lines.filter((line) => line.no > this.#newest);
    if (!fresh.length) return;
    this.#newest = fresh.at(-1).no;
    const matching = this.#filtered ? fresh.filter((line) => this.#matches(line)) : fresh;
    this.#unsaid.lines += matching.length;
    this.#unsaid.errors += matching.filter((line) => line.level === "error").length;
    if (this.#atEnd && !this.#following && this.#window.size + matching.length > LINES_MAX) this.#atEnd = false;
    if (this.#atEnd) this.#window.append(matching);
    if (this.#following) {
      if (this.#window.dropOldest()) this.#more = true;
      this.#toEnd();
    } else {
      this.#unseen += matching.length;
    }
    this.#paintLines();
    if (!this.#thisRun) this.refresh();
  }

  #matches(line) {
    if (this.#levels.size && !this.#levels.has(line.level)) return false;
    return !this.#search || line.message.toLowerCase().includes(this.#search.toLowerCase());
  }

  // -- what is seen ---------------------------------------------------------------------------------------------------

  #paintHead() {
    const job = this.#job;
    const run = this.#thisRun;
    const state = run ? run.outcome : ENDED.has(job.state) ? job.state : "queued";
    const status = job.status === "cancelling" && state === "running" ? "cancelling" : state;
    this.dataset.outcome = state;
    const word = { queued: "waiting", lost: "worker lost", released: "given back" }[status] ?? status;
    this.#$(".lv-state").textContent = word[0].toUpperCase() + word.slice(1);
    this.#$(".lv-scroll").setAttribute("aria-label", `Log of attempt ${this.#run}`);
    this.#paintRuns();
    this.#tick();
    const error = this.#$(".lv-error");
    error.hidden = !(run?.error_message || run?.error_code) || state === "completed";
    if (!error.hidden) {
      error.firstElementChild.textContent = run.error_code ?? "error";
      error.lastElementChild.textContent = run.error_message ?? "";
    }
    const actions = new Set((this.getAttribute("actions") ?? "").split(" "));
    const cancel = this.#$(".lv-cancel");
    cancel.hidden = !actions.has("cancel") || ENDED.has(job.state);
    cancel.disabled = job.status === "cancelling";
    cancel.textContent = cancel.disabled ? "Cancelling…" : "Cancel";
    cancel.setAttribute("aria-busy", String(cancel.disabled));
    this.#$(".lv-retry").hidden = !actions.has("retry") || !["failed", "cancelled"].includes(job.state);
    const address = `${this.#address}/runs/${this.#run}/logs`;
    for (const format of ["text", "ndjson"]) {
      const query = this.#query({ format });
      this.#$(`.lv-${format}`).href = `${address}?${query}`;
    }
    this.#paintEmpty();
  }

  #paintRuns() {
    const select = this.#$(".lv-run select");
    const names = this.#runs.map((run) => [run.run_no, OUTCOMES[run.outcome] ?? run.outcome]);
    names.sort((one, other) => other[0] - one[0]);
    if (!this.#thisRun) names.unshift([this.#run, ENDED.has(this.#job.state) ? "did not begin" : "waiting"]);
    const wanted = names.map(([no, outcome]) => `Attempt ${no} (${outcome})`);
    if ([...select.options].map((option) => option.text).join("|") !== wanted.join("|")) {
      select.replaceChildren(...names.map(([no], i) => new Option(wanted[i], no)));
    }
    select.value = String(this.#run);
  }

  #tick() {
    const run = this.#thisRun;
    const slow = this.#$(".lv-slow");
    const timer = this.#$(".lv-timer");
    if (!run?.started_at) {
      const at = this.#job?.run_at;
      const later = at && Date.parse(at) > Date.now() + this.#offset;
      timer.textContent = later && !this.#over ? `begins at ${clock(new Date(at))}` : "";
      slow.hidden = true;
      return;
    }
    const began = Date.parse(run.started_at);
    const ended = run.finished_at ? Date.parse(run.finished_at) : null;
    const took = Math.max(0, (ended ?? Date.now() + this.#offset) - began);
    const runs = run.outcome === "running";
    const said = runs ? duration(Math.floor(took / 1000) * 1000).replace("0 ms", "0 s") : `${run.outcome === "completed" ? "in" : "after"} ${duration(took)}`;
    const waits = !runs && this.#job.state === "queued" && this.#run === this.#job.run_no && this.#job.run_at;
    timer.textContent = waits ? `${said} · attempt ${this.#run + 1} at ${clock(new Date(this.#job.run_at))}` : said;
    slow.hidden = !(runs && took > (this.#job.expected_duration ?? SLOW_SECONDS) * 1000);
  }

  #mode(mode) {
    this.dataset.mode = mode;
    const pill = this.#$(".lv-live");
    pill.hidden = mode === "past";
    pill.textContent = { live: "live", paced: "live, every 2 s", polling: "polling", gone: "ended" }[mode] ?? "connecting";
    if (mode === "polling") this.#note(`The live stream is interrupted: the log is read every ${this.#times.poll} s until it is back.`);
    else if (mode !== "gone") this.#note("");
  }

  #note(text) {
    const note = this.#$(".lv-note");
    note.hidden = !text;
    if (note.textContent !== text) note.textContent = text;
  }

  #paintLines() {
    const shown = this.#window.size;
    const count = this.#$(".lv-count");
    const lines = (n) => `${number(n)} ${n === 1 ? "line" : "lines"}`;
    if (this.#filtered) {
      count.textContent = `${number(shown)}${this.#more ? " or more" : ""} of ${lines(this.#newest)} match`;
    } else {
      count.textContent = lines(this.#newest);
    }
    this.#$(".lv-clear").hidden = !this.#filtered;
    const earlier = this.#$(".lv-earlier");
    earlier.hidden = !this.#more;
    earlier.textContent = this.#filtered ? "Earlier lines" : `${lines((this.#window.first ?? 1) - 1)} before this`;
    const later = this.#$(".lv-later");
    later.hidden = this.#atEnd;
    later.textContent = this.#filtered ? "Later lines" : `${lines(this.#newest - (this.#window.last ?? 0))} after this`;
    const fresh = this.#$(".lv-new");
    fresh.hidden = this.#following || this.#unseen === 0;
    fresh.textContent = `${number(this.#unseen)} new ${this.#unseen === 1 ? "line" : "lines"}`;
    this.dataset.lines = String(shown);
    this.#paintEmpty();
  }

  #paintEmpty() {
    const empty = this.#$(".lv-empty");
    empty.hidden = this.#window.size > 0;
    if (this.#filtered) empty.textContent = `None of the ${number(this.#newest)} lines match.`;
    else if (this.dataset.outcome === "queued") empty.textContent = "Waiting for a worker. Lines appear here as they are written.";
    else if (this.dataset.outcome === "running") empty.textContent = "No lines yet.";
    else empty.textContent = "This attempt wrote no lines.";
  }

  #announce() {
    const { lines, errors } = this.#unsaid;
    if (!lines) return;
    this.#unsaid = { lines: 0, errors: 0 };
    const told = errors ? `, ${errors} of them ${errors === 1 ? "an error" : "errors"}` : "";
    this.#$(".lv-said").textContent = `${lines} new ${lines === 1 ? "line" : "lines"}${told}`;
  }

  // -- scrolling ------------------------------------------------------------------------------------------------------

  #setFollowing(following) {
    this.#following = following;
    if (following) this.#unseen = 0;
    this.#$(".lv-follow").setAttribute("aria-pressed", String(following));
    this.toggleAttribute("data-following", following);
  }

  #toEnd() {
    const scroll = this.#$(".lv-scroll");
    const pin = () => {
      if (!this.#following) return;
      scroll.scrollTop = scroll.scrollHeight;
      this.#scrollTop = scroll.scrollTop;
    };
    pin();
    requestAnimationFrame(pin); // chunks that come into view are laid out only now, and may be higher than was thought
  }

  async #followEnd() {
    this.#setFollowing(true);
    if (!this.#atEnd) await this.#loadNewest();
    this.#paintLines();
    this.#toEnd();
  }

  #onScroll = () => {
    const scroll = this.#$(".lv-scroll");
    const toEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    const up = scroll.scrollTop < this.#scrollTop - 1;
    this.#scrollTop = scroll.scrollTop;
    if (toEnd < NEAR_END_PX && this.#atEnd) {
      if (!this.#following && !up) {
        this.#setFollowing(true);
        this.#paintLines();
      }
    } else if (up && this.#following) {
      this.#setFollowing(false);
      this.#paintLines();
    }
    if (scroll.scrollTop < 400 && this.#more && !this.#following) this.#once(() => this.#readEarlier());
    if (toEnd < 400 && !this.#atEnd) this.#once(() => this.#readLater());
  };

  #onHash = () => {
    const no = lineOfHash();
    if (no !== null) this.#goTo(no);
  };

  async #goTo(no) {
    this.#setFollowing(false);
    if (this.#filtered || !this.#window.lines.has(no)) await this.#loadAround(no);
    else this.#mark(no);
  }

  #mark(no) {
    for (const marked of this.querySelectorAll(".lv-target")) marked.classList.remove("lv-target");
    const row = this.#window.element(no);
    if (!row) return;
    row.classList.add("lv-target");
    this.#current(row);
    const look = () => row.scrollIntoView({ block: "center" });
    look();
    requestAnimationFrame(() => {
      look();
      this.#scrollTop = this.#$(".lv-scroll").scrollTop;
    });
  }

  #current(row) {
    for (const other of this.querySelectorAll('.lv-line[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
  }

  // -- what people do -------------------------------------------------------------------------------------------------

  #listen() {
    const on = (selector, type, act) => this.#$(selector).addEventListener(type, act);
    on(".lv-scroll", "scroll", this.#onScroll);
    on(".lv-scroll", "keydown", (event) => this.#onKey(event));
    on(".lv-list", "click", (event) => this.#onClick(event));
    on(".lv-earlier", "click", () => this.#once(() => this.#readEarlier()));
    on(".lv-later", "click", () => this.#once(() => this.#readLater()));
    on(".lv-new", "click", () => this.#followEnd());
    on(".lv-follow", "click", () => (this.#following ? this.#setFollowing(false) : this.#followEnd()));
    on(".lv-clear", "click", () => {
      this.#clearFilter();
      this.#filter();
      this.#$("input").focus();
    });
    on(".lv-run select", "change", (event) => this.#choose(Number(event.target.value)));
    on(".lv-levels", "click", (event) => {
      const level = event.target.dataset.level;
      if (!level) return;
      if (!this.#levels.delete(level)) this.#levels.add(level);
      event.target.setAttribute("aria-pressed", String(this.#levels.has(level)));
      this.#filter();
    });
    let typing = null;
    on("input", "input", (event) => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        this.#search = event.target.value;
        this.#filter();
      }, SEARCH_MS);
    });
    on(".lv-cancel", "click", () => this.#$(".lv-dialog").showModal());
    on(".lv-dialog", "click", (event) => {
      if (!event.target.value) return;
      this.#$(".lv-dialog").close();
      if (event.target.value === "yes") this.#act("cancel");
    });
    on(".lv-retry", "click", () => this.#act("retry"));
  }

  async #act(verb) {
    const button = this.#$(`.lv-${verb}`);
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    await this.#ask(`${this.#address}/${verb}`, { method: "POST" });
    button.disabled = false;
    button.setAttribute("aria-busy", "false");
    if (verb === "retry") {
      this.#pinned = false;
      this.#ended = null;
    }
    await this.refresh();
  }

  #choose(run) {
    this.#pinned = run !== this.#newestRun;
    const address = new URL(location.href);
    address.searchParams.set("run", run);
    address.hash = "";
    history.replaceState(history.state, "", address);
    this.#emit("log-run", { run });
    this.#show(run, null);
  }

  #clearFilter() {
    this.#levels.clear();
    this.#search = "";
    this.#$("input").value = "";
    for (const button of this.querySelectorAll(".lv-levels button")) button.setAttribute("aria-pressed", "false");
    this.#paintHead();
  }

  #filter() {
    this.#paintHead();
    this.#setFollowing(true);
    this.#loadNewest();
  }

  #onClick(event) {
    const row = event.target.closest(".lv-line");
    if (!row) return;
    if (event.target.closest(".lv-no")) {
      event.preventDefault();
      history.replaceState(history.state, "", `#${row.id}`);
      this.#goTo(Number(row.id.slice(1)));
      return;
    }
    if (!getSelection().isCollapsed) return; // somebody copies
    this.#current(row);
    this.#toggle(row);
  }

  #toggle(row) {
    const open = this.#window.toggle(row);
    this.#$(".lv-said").textContent = open ? "Details opened" : "Details closed";
    if (open && this.#following) this.#setFollowing(false);
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest(".lv-line");
    const act = {
      ArrowDown: () => this.#step(row, 1),
      ArrowUp: () => this.#step(row, -1),
      j: () => this.#step(row, 1),
      k: () => this.#step(row, -1),
      Enter: () => row && this.#toggle(row),
      Escape: () => row && this.#window.isOpen(row) && this.#toggle(row),
      End: () => this.#followEnd(),
      Home: () => this.#goTo(1),
      f: () => this.#followEnd(),
      e: () => this.#nextError(row),
    }[event.key];
    if (!act || event.target.closest("button")) return;
    event.preventDefault();
    event.stopPropagation(); // the page has keys of its own
    act();
  }

  #step(row, step) {
    const scroll = this.#$(".lv-scroll").getBoundingClientRect();
    let next = row && this.#window.neighbour(row, step);
    if (!row) {
      const edge = step > 0 ? scroll.top + 12 : scroll.bottom - 12;
      next = document.elementFromPoint(scroll.left + scroll.width / 2, edge)?.closest(".lv-line") ?? this.#$(".lv-line");
    }
    if (!next) return;
    this.#setFollowing(false);
    this.#current(next);
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  async #nextError(row) {
    const after = row ? Number(row.id.slice(1)) : 0;
    const found = await this.#page({ after, level: "error", limit: 1 }, false);
    if (!found.length) {
      this.#$(".lv-said").textContent = "No further error";
      return;
    }
    await this.#goTo(found[0].no);
    this.#window.element(found[0].no)?.focus({ preventScroll: true });
  }
}

function lineOfHash() {
  const found = /^#L([1-9][0-9]{0,14})$/.exec(location.hash);
  return found ? Number(found[1]) : null;
}

customElements.define("log-view", LogView);
