// How many lines there are, before, after and new ones; what stands there when there are none; what is said aloud.

const number = new Intl.NumberFormat("en").format;
const lines = (n) => `${number(n)} ${n === 1 ? "line" : "lines"}`;
const EMPTY = { queued: "Waiting for a worker. Lines appear here as they are written.", running: "No lines yet." };

export class Counts {
  #view;
  #window;
  #filter;
  #follow;
  #unseen = 0;
  #unsaid = { lines: 0, errors: 0 };

  constructor(view, window, filter, follow) {
    this.#view = view;
    this.#window = window;
    this.#filter = filter;
    this.#follow = follow;
  }

  #$(selector) {
    return this.#view.querySelector(selector);
  }

  /** Lines have come. */
  add(fresh) {
    this.#unsaid.lines += fresh.length;
    this.#unsaid.errors += fresh.filter((line) => line.level === "error").length;
    if (!this.#follow.on) this.#unseen += fresh.length;
  }

  paint({ newest, more, atEnd }) {
    const filtered = this.#filter.on;
    const shown = this.#window.size;
    if (this.#follow.on) this.#unseen = 0;
    this.#$(".lv-count").textContent = filtered
      ? `${number(shown)}${more ? " or more" : ""} of ${lines(newest)} match`
      : lines(newest);
    this.#$(".lv-clear").hidden = !filtered;
    const earlier = this.#$(".lv-earlier");
    earlier.hidden = !more;
    earlier.textContent = filtered ? "Earlier lines" : `${lines((this.#window.first ?? 1) - 1)} before this`;
    const later = this.#$(".lv-later");
    later.hidden = atEnd;
    later.textContent = filtered ? "Later lines" : `${lines(newest - (this.#window.last ?? 0))} after this`;
    const fresh = this.#$(".lv-new");
    fresh.hidden = this.#follow.on || this.#unseen === 0;
    fresh.textContent = `${number(this.#unseen)} new ${this.#unseen === 1 ? "line" : "lines"}`;
    this.#$(".lv-follow").setAttribute("aria-pressed", String(this.#follow.on));
    this.#view.toggleAttribute("data-following", this.#follow.on);
    this.#view.dataset.lines = String(shown);
    this.#paintEmpty(newest);
  }

  #paintEmpty(newest) {
    const empty = this.#$(".lv-empty");
    empty.hidden = this.#window.size > 0;
    if (this.#filter.on) empty.textContent = `None of the ${number(newest)} lines match.`;
    else empty.textContent = EMPTY[this.#view.dataset.outcome] ?? "This attempt wrote no lines.";
  }

  /** Now and then, for those who hear the page: not every line. */
  announce() {
    const { lines: count, errors } = this.#unsaid;
    if (!count) return;
    this.#unsaid = { lines: 0, errors: 0 };
    this.say(`${count} new ${count === 1 ? "line" : "lines"}${errors ? `, ${errors} of them ${errors === 1 ? "an error" : "errors"}` : ""}`);
  }

  say(text) {
    this.#$(".lv-said").textContent = text;
  }
}
