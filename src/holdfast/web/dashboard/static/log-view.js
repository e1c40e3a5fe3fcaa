// <log-view job="…" run="2" api="/api" state="running" actions="cancel retry">: the log of a run, live.
// What the server wrote inside is shown until this takes over, and where there are no scripts. Dispatches `log-end` when the run
// that is watched has ended, or may not be watched any more; `log-run` when another run is shown; `log-state` when the job's
// state has changed; `log-act` before something is done to the job, which a page may prevent to ask in its own way.
// Styles: log-view.css. Here is which run is shown and what is watched; the other files have the parts.

import { JobApi } from "./log-api.js";
import { Counts } from "./log-counts.js";
import { Filter } from "./log-filter.js";
import { Follow } from "./log-follow.js";
import { ENDED, Head } from "./log-head.js";
import { Reader } from "./log-reader.js";
import { Rows, lineOfHash } from "./log-rows.js";
import { Source } from "./log-source.js";
import { LogWindow } from "./log-window.js";

const JOB_MS = 15000;
const ANNOUNCE_MS = 5000;
const ACTIVE = new Set(["queued", "scheduled", "retrying", "running", "cancelling"]);

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
  #api;
  #head;
  #window;
  #filter;
  #follow;
  #reader;
  #rows;
  #counts;
  #job = null;
  #run = 0;
  /** An earlier attempt was chosen: later ones do not take its place. */
  #pinned = false;
  #source = null;
  /** Where the next attempt will write. */
  #next = null;
  #ended = null;
  #timers = [];
  #written = [];

  connectedCallback() {
    if (!this.#head) this.#build();
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

  #build() {
    this.#written = [...this.childNodes];
    this.dataset.building = "";
    this.append(TEMPLATE.content.cloneNode(true));
    const scroll = this.#$(".lv-scroll");
    const list = this.#$(".lv-list");
    this.#api = new JobApi(this.#where.api, this.#where.job, {
      gone: () => this.#end("access_ended"),
      refused: (why) => this.#head.note(why),
      unreachable: () => this.#source || this.#head.note("The server cannot be reached."),
    });
    this.#head = new Head(this);
    this.#window = new LogWindow(list);
    this.#filter = new Filter(this.#$(".lv-levels"), this.#$(".lv-tools input"), () => this.#filtered());
    this.#follow = new Follow(scroll, list, {
      atEnd: () => this.#reader.atEnd,
      changed: () => this.#paintLines(),
      nearTop: () => this.#reader.more && this.#reader.loadEarlier(),
      nearEnd: () => this.#reader.atEnd || this.#reader.loadLater(),
    });
    this.#counts = new Counts(this, this.#window, this.#filter, this.#follow);
    this.#reader = new Reader(this.#window, this.#filter, this.#follow, (query) => this.#lines(query), {
      painted: () => this.#paintLines(),
      added: (fresh) => this.#added(fresh),
    });
    this.#rows = new Rows(scroll, this.#window, this.#follow, this.#reader, {
      goTo: (no) => this.#goTo(no),
      followEnd: () => this.#followEnd(),
      said: (text) => this.#counts.say(text),
    });
    this.#listen();
  }

  /** What the server wrote goes once there is something to put in its place: nothing jumps, nothing is empty meanwhile. */
  #takeOver() {
    for (const node of this.#written.splice(0)) node.remove();
    delete this.dataset.building;
  }

  get #where() {
    return { api: this.getAttribute("api") ?? "/api", job: this.getAttribute("job") };
  }

  get #times() {
    return { poll: Number(this.dataset.poll ?? 30), silent: Number(this.dataset.silent ?? 30) };
  }

  async #start() {
    addEventListener("hashchange", this.#onHash);
    this.#timers.push(setInterval(() => this.#head.tick(), 1000));
    this.#timers.push(setInterval(() => document.hidden || this.#over || this.refresh(), JOB_MS));
    this.#timers.push(setInterval(() => this.#counts.announce(), ANNOUNCE_MS));
    await this.refresh();
    if (!this.#job) return this.#takeOver();
    const asked = Number(this.getAttribute("run"));
    // The page was written a moment ago, and the job may have gone on since.
    if (!asked && this.hasAttribute("state") && this.getAttribute("state") !== this.#job.status) this.#emit("log-state", { state: this.#job.state });
    const newest = this.#newestRun;
    // A run that was going on when the page was made is the newest of then: another may have begun since.
    this.#pinned = Boolean(asked) && asked !== newest && !ACTIVE.has(this.getAttribute("state"));
    const shown = this.#show(this.#pinned ? asked : newest);
    this.#takeOver();
    await shown;
    this.dataset.ready = "";
  }

  /** The run that is going on or, of a job that waits, the newest there was: its log is worth reading until the next begins. */
  get #newestRun() {
    return Math.max(1, this.#job.run_no);
  }

  get #over() {
    return this.#ended === "access_ended" || !this.#job || ENDED.has(this.#job.state);
  }

  get #thisRun() {
    return this.#job?.runs?.find((run) => run.run_no === this.#run) ?? null;
  }

  async refresh() {
    const answer = await this.#api.job();
    if (!answer) return;
    const before = this.#job;
    this.#job = answer.job;
    this.#head.setClock(answer.date);
    if (before && before.state !== this.#job.state) this.#emit("log-state", { state: this.#job.state });
    if (this.#run) {
      this.#paintHead();
      this.#goOn();
    }
  }

  // -- which run ------------------------------------------------------------------------------------------------------

  async #show(run, around = lineOfHash()) {
    this.#stopSources();
    this.#run = run;
    this.#ended = null;
    this.#reader.begin(run);
    this.#head.note("");
    this.#paintHead();
    this.#follow.set(around === null);
    await (around === null ? this.#reader.loadNewest() : this.#lookAt(around));
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
      this.#source ??= this.#watch(this.#run, this.#reader.newest, (news) => this.#hear(news));
      return;
    }
    if (!this.#source) this.#mode("past");
    if (this.#pinned || ENDED.has(this.#job.state) || this.#source) return;
    if (this.#job.state === "running" && this.#job.run_no > this.#run) {
      this.#show(this.#job.run_no, null);
      return;
    }
    const next = this.#job.run_no + 1;
    this.#next ??= this.#watch(next, 0, (news) => this.#hearOfNext(next, news));
  }

  #watch(run, after, tell) {
    let source = null;
    source = new Source({ ...this.#where, run }, after, this.#times, (news) => {
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
    if (news.type === "joined" && news.after > this.#reader.newest) this.#reader.take([], news.after + 1);
    if (news.type === "lines") this.#reader.take(news.lines);
    if (news.type === "end") this.#reader.afterLines(() => this.#end(news.reason));
  }

  #hearOfNext(run, news) {
    if (news.type !== "lines" && news.type !== "end") return;
    this.#next?.close();
    this.#next = null;
    if (news.type === "lines" || news.reason === "ended") this.refresh().then(() => this.#show(run, null));
    else if (news.reason === "access_ended") this.#end("access_ended");
    else this.refresh();
  }

  async #end(reason) {
    const run = this.#run;
    this.#stopSources();
    if (reason === "access_ended") {
      if (this.#ended === reason) return;
      this.#ended = reason;
      this.#mode("gone");
      this.#head.note("You may no longer watch this log. Sign in again, or ask an owner of the organization.");
    } else {
      this.#ended = reason;
      this.#mode("past");
      await this.refresh();
    }
    this.#emit("log-end", { reason, run, state: this.#job?.state ?? null });
  }

  #emit(name, detail) {
    return this.dispatchEvent(new CustomEvent(name, { bubbles: true, cancelable: true, detail }));
  }

  // -- what is seen ---------------------------------------------------------------------------------------------------

  async #lines(query) {
    if (!this.#thisRun && this.#job.run_no < this.#run) return []; // it has not begun
    return this.#api.lines(this.#run, query);
  }

  #added(fresh) {
    this.#counts.add(fresh);
    if (!this.#thisRun) this.refresh();
  }

  #paintHead() {
    this.#head.paint(this.#job, this.#thisRun, this.#run);
    this.#head.setDownloads((format) => this.#api.logs(this.#run, this.#filter.query({ format })));
    this.#paintLines();
  }

  #paintLines() {
    this.#counts.paint(this.#reader);
  }

  #mode(mode) {
    this.#head.setMode(mode, this.#times.poll);
  }

  // -- what people do -------------------------------------------------------------------------------------------------

  #listen() {
    const on = (selector, type, act) => this.#$(selector).addEventListener(type, act);
    on(".lv-earlier", "click", () => this.#reader.loadEarlier());
    on(".lv-later", "click", () => this.#reader.loadLater());
    on(".lv-new", "click", () => this.#followEnd());
    on(".lv-follow", "click", () => (this.#follow.on ? this.#follow.set(false) : this.#followEnd()));
    on(".lv-clear", "click", () => {
      this.#filter.clear();
      this.#filtered();
      this.#$(".lv-tools input").focus();
    });
    on(".lv-run select", "change", (event) => this.#choose(Number(event.target.value)));
    on(".lv-cancel", "click", () => this.#emit("log-act", { verb: "cancel" }) && this.#$(".lv-dialog").showModal());
    on(".lv-dialog", "click", (event) => {
      if (!event.target.value) return;
      this.#$(".lv-dialog").close();
      if (event.target.value === "yes") this.#act("cancel");
    });
    on(".lv-retry", "click", () => this.#emit("log-act", { verb: "retry" }) && this.#act("retry"));
  }

  #onHash = () => {
    const no = lineOfHash();
    if (no !== null) this.#goTo(no);
  };

  async #goTo(no) {
    this.#follow.set(false);
    if (this.#filter.on || !this.#window.lines.has(no)) await this.#lookAt(no);
    else this.#rows.mark(no);
  }

  async #lookAt(no) {
    if (this.#filter.on) {
      this.#filter.clear();
      this.#paintHead();
    }
    const found = await this.#reader.loadAround(no);
    if (typeof found === "number") this.#rows.mark(found);
  }

  async #followEnd() {
    this.#follow.set(true);
    if (!this.#reader.atEnd) await this.#reader.loadNewest();
    this.#paintLines();
    this.#follow.toEnd();
  }

  #filtered() {
    this.#paintHead();
    this.#follow.set(true);
    this.#reader.loadNewest();
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

  async #act(verb) {
    const button = this.#$(`.lv-${verb}`);
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    await this.#api.act(verb);
    button.disabled = false;
    button.setAttribute("aria-busy", "false");
    if (verb === "retry") {
      this.#pinned = false;
      this.#ended = null;
    }
    await this.refresh();
  }
}

customElements.define("log-view", LogView);
