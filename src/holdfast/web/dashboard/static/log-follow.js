// Following the end: until somebody scrolls up, and again once he is back there.

const NEAR_END_PX = 40;
const NEAR_EDGE_PX = 400;

export class Follow {
  on = true;
  #scroll;
  #told;
  #top = 0;
  #height = 0;
  #sizes = new ResizeObserver(() => this.#pin());

  /** `told`: {atEnd, changed, nearTop, nearEnd}; `atEnd` says whether the newest line is in the page at all. */
  constructor(scroll, list, told) {
    this.#scroll = scroll;
    this.#told = told;
    scroll.addEventListener("scroll", () => this.#scrolled());
    // A window that is made smaller, a phone that is turned, a line that wraps once it is laid out.
    this.#sizes.observe(scroll);
    this.#sizes.observe(list);
  }

  set(on) {
    this.on = on;
    this.#told.changed();
  }

  toEnd() {
    this.#pin();
    requestAnimationFrame(() => this.#pin()); // chunks that come into view are laid out only now, and may be higher than was thought
  }

  /** What is looked at stays where it is while lines are put in above it. */
  keep(row, change) {
    const before = row.getBoundingClientRect().top;
    this.#scroll.classList.add("lv-still");
    change();
    this.#scroll.scrollTop += row.getBoundingClientRect().top - before;
    requestAnimationFrame(() => this.#scroll.classList.remove("lv-still"));
  }

  center(row) {
    const look = () => row.scrollIntoView({ block: "center" });
    look();
    requestAnimationFrame(() => {
      look();
      this.#top = this.#scroll.scrollTop;
    });
  }

  #pin() {
    if (!this.on) return;
    this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#top = this.#scroll.scrollTop;
    this.#height = this.#scroll.clientHeight;
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroll;
    const toEnd = scrollHeight - scrollTop - clientHeight;
    // Where the frame has another height than before, the browser has scrolled, and nobody else.
    const up = scrollTop < this.#top - 1 && clientHeight === this.#height;
    this.#top = scrollTop;
    this.#height = clientHeight;
    if (toEnd < NEAR_END_PX && this.#told.atEnd()) {
      if (!this.on && !up) this.set(true);
    } else if (up && this.on) {
      this.set(false);
    }
    if (scrollTop < NEAR_EDGE_PX && !this.on) this.#told.nearTop();
    if (toEnd < NEAR_EDGE_PX) this.#told.nearEnd();
  }
}
