// Above the lines: state, attempts, time, error, buttons, downloads, and a note when something is not as usual.

import { clock, duration } from "./log-lines.js";

const SLOW_SECONDS = 300;
const OUTCOMES = { running: "in progress", lost: "worker lost", released: "given back" };
const WORDS = { queued: "waiting", lost: "worker lost", released: "given back" };
const MODES = { live: "live", paced: "live, every 2 s", polling: "polling", gone: "ended" };
export const ENDED = new Set(["completed", "failed", "cancelled"]);

export class Head {
  #view;
  #job = null;
  #run = null;
  #no = 0;
  /** How far the server's clock is ahead of ours. */
  #offset = 0;

  constructor(view) {
    this.#view = view;
  }

  #$(selector) {
    return this.#view.querySelector(selector);
  }

  setClock(date) {
    if (date && Math.abs(date - Date.now()) > 2000) this.#offset = date - Date.now();
  }

  /** `run` is null as long as attempt `no` has not begun. */
  paint(job, run, no) {
    this.#job = job;
    this.#run = run;
    this.#no = no;
    const state = run ? run.outcome : ENDED.has(job.state) ? job.state : "queued";
    const status = job.status === "cancelling" && state === "running" ? "cancelling" : state;
    this.#view.dataset.outcome = state;
    const word = WORDS[status] ?? status;
    this.#$(".lv-state").textContent = word[0].toUpperCase() + word.slice(1);
    this.#$(".lv-scroll").setAttribute("aria-label", `Log of attempt ${no}`);
    this.#paintRuns();
    this.tick();
    this.#paintError(state);
    this.#paintButtons();
  }

  #paintRuns() {
    const select = this.#$(".lv-run select");
    const names = (this.#job.runs ?? []).map((run) => [run.run_no, OUTCOMES[run.outcome] ?? run.outcome]);
    names.sort((one, other) => other[0] - one[0]);
    if (!this.#run) names.unshift([this.#no, ENDED.has(this.#job.state) ? "did not begin" : "waiting"]);
    const wanted = names.map(([no, outcome]) => `Attempt ${no} (${outcome})`);
    if ([...select.options].map((option) => option.text).join("|") !== wanted.join("|")) {
      select.replaceChildren(...names.map(([no], i) => new Option(wanted[i], no)));
    }
    select.value = String(this.#no);
  }

  #paintError(state) {
    const run = this.#run;
    const error = this.#$(".lv-error");
    error.hidden = !(run?.error_message || run?.error_code) || state === "completed";
    if (error.hidden) return;
    error.firstElementChild.textContent = run.error_code ?? "error";
    error.lastElementChild.textContent = run.error_message ?? "";
  }

  #paintButtons() {
    const job = this.#job;
    const offered = new Set((this.#view.getAttribute("actions") ?? "").split(" "));
    const cancel = this.#$(".lv-cancel");
    cancel.hidden = !offered.has("cancel") || ENDED.has(job.state);
    cancel.disabled = job.status === "cancelling";
    cancel.textContent = cancel.disabled ? "Cancelling…" : "Cancel";
    cancel.setAttribute("aria-busy", String(cancel.disabled));
    this.#$(".lv-retry").hidden = !offered.has("retry") || !["failed", "cancelled"].includes(job.state);
  }

  setDownloads(addressOf) {
    for (const format of ["text", "ndjson"]) this.#$(`.lv-${format}`).href = addressOf(format);
  }

  /** Once a second: how long it runs, when it begins, and whether that is longer than it should be. */
  tick() {
    const job = this.#job;
    const run = this.#run;
    const timer = this.#$(".lv-timer");
    const slow = this.#$(".lv-slow");
    if (!run?.started_at) {
      const later = job?.run_at && !ENDED.has(job.state) && Date.parse(job.run_at) > Date.now() + this.#offset;
      timer.textContent = later ? `begins at ${clock(new Date(job.run_at))}` : "";
      slow.hidden = true;
      return;
    }
    const ended = run.finished_at ? Date.parse(run.finished_at) : null;
    const took = Math.max(0, (ended ?? Date.now() + this.#offset) - Date.parse(run.started_at));
    const runs = run.outcome === "running";
    const said = runs ? duration(Math.floor(took / 1000) * 1000).replace("0 ms", "0 s") : `${run.outcome === "completed" ? "in" : "after"} ${duration(took)}`;
    const waits = !runs && job.state === "queued" && this.#no === job.run_no && job.run_at;
    timer.textContent = waits ? `${said} · attempt ${this.#no + 1} at ${clock(new Date(job.run_at))}` : said;
    slow.hidden = !(runs && took > (job.expected_duration ?? SLOW_SECONDS) * 1000);
  }

  setMode(mode, pollSeconds) {
    this.#view.dataset.mode = mode;
    const pill = this.#$(".lv-live");
    pill.hidden = mode === "past";
    pill.textContent = MODES[mode] ?? "connecting";
    if (mode === "polling") this.note(`The live stream is interrupted: the log is read every ${pollSeconds} s until it is back.`);
    else if (mode !== "gone") this.note("");
  }

  note(text) {
    const note = this.#$(".lv-note");
    note.hidden = !text;
    if (note.textContent !== text) note.textContent = text;
  }
}
