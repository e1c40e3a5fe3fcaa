// What the panel asks the server about one job.

export class JobApi {
  #address;
  #told;

  /** `told`: {gone, refused, unreachable}, for what stands in the way of an answer. */
  constructor(api, job, told) {
    this.#address = `${api}/jobs/${encodeURIComponent(job)}`;
    this.#told = told;
  }

  /** The job, and the server's clock; null where there is no answer. */
  async job() {
    const answer = await this.#ask(this.#address);
    return answer && { job: await answer.json(), date: Date.parse(answer.headers.get("date")) };
  }

  logs(run, query) {
    return `${this.#address}/runs/${run}/logs?${query}`;
  }

  async lines(run, query) {
    const answer = await this.#ask(this.logs(run, query));
    return answer ? (await answer.json()).items : [];
  }

  act(verb) {
    return this.#ask(`${this.#address}/${verb}`, { method: "POST" });
  }

  /** Who may not ask any more is told so; a run that is not there yet is no refusal. */
  async #ask(address, options) {
    try {
      const answer = await fetch(address, { cache: "no-store", ...options });
      if (answer.ok) return answer;
      if (answer.status === 404 && (await answer.clone().json()).code === "run_not_found") return null;
      if ([401, 403, 404].includes(answer.status) && !options) this.#told.gone();
      else this.#told.refused((await answer.json()).detail ?? `The server answered ${answer.status}.`);
    } catch {
      this.#told.unreachable();
    }
    return null;
  }
}
