// What the worker is doing, as /events tells it once a second. Counts are totals; rates are taken here.
import { Chart } from "./chart.js";

const RATE_OVER_LOOKS = 5;
const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
// In the browser's time zone.
const hour = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });
const moment = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
const number = (value) => (value > 0 && value < 10 && value % 1 ? small : whole).format(value);

export function duration(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60]];
  for (const [index, [name, length]] of parts.entries()) {
    if (seconds < length) continue;
    const [next, shorter] = parts[index + 1] ?? ["s", 1];
    const rest = Math.floor((seconds % length) / shorter);
    return `${Math.floor(seconds / length)} ${name}${rest ? ` ${rest} ${next}` : ""}`;
  }
  return `${Math.floor(seconds)} s`;
}

export function bytes(value) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; value >= 1024 && at + 1 < names.length; at += 1) value /= 1024;
  return `${number(value < 100 ? Math.round(value * 10) / 10 : value)} ${names[at]}`;
}

/** A cell: text, a class, a heading of its row or not. */
export function cell(text, { name = "td", kind = "" } = {}) {
  const made = document.createElement(name);
  if (name === "th") made.scope = "row";
  if (kind) made.className = kind;
  made.textContent = text;
  return made;
}

export function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

/** Puts rows in the place of others; `none` is said where there are none. */
export function fill(id, rows, none) {
  const body = byId(id);
  if (rows.length === 0) {
    const empty = cell(none, { kind: "empty" });
    empty.colSpan = body.closest("table").querySelectorAll("thead th").length;
    rows = [row(empty)];
  }
  body.replaceChildren(...rows);
}

function bar(share) {
  const made = cell("", { kind: "bar" });
  const fillOf = document.createElement("span");
  fillOf.style.setProperty("--share", Math.min(1, Math.max(0, share)).toFixed(4));
  made.append(fillOf);
  made.setAttribute("aria-hidden", "true");
  return made;
}

/** What a limit counts over. */
const spanOf = ({ window, per }) => (window ? `in any ${window}` : per ? `per ${per}` : "in total");

/** What only limits of a kind have, where they have more than all. */
const words = {
  // More than the limit is no mistake: some users come whatever it is.
  pressure: ({ used, limit, members, exempt_users: exempt, sync_age_s: age, available }) => [
    `of ${number(members)} ${members === 1 ? "instance" : "instances"}`,
    ...(available ? [] : [`not synced for ${duration(age)}`]),
    ...(exempt ? [`${number(exempt)} came through this instance by intents that it does not apply to`] : []),
    ...(exempt || used > limit ? ["reports, and intents that it does not apply to, are not bounded"] : []),
  ],
  route: ({ drain_per_s: drain, lag, waiting, oldest_waiting_s: oldest, expected_wait_s: wait }) => [
    `delivery takes ${number(drain)} a second`,
    ...(lag === null ? [] : [`${number(lag)} are not delivered`]),
    ...(waiting ? [`${number(waiting)} wait${oldest === null ? "" : `, the oldest for ${duration(oldest)}`}, all of them for ${duration(wait)}`] : []),
  ],
  service: ({ concurrency, outstanding }) => [`${number(outstanding)} admissions of this instance are open, of ${number(concurrency)} at once`],
};

const sum = (list) => list.reduce((total, { count }) => total + count, 0);

/** The totals of a look, by the name that their rate is looked up under. */
function totals(look) {
  const all = new Map();
  const add = (name, count) => all.set(name, (all.get(name) ?? 0) + count);
  for (const { verdict, reason, count } of look.decisions) {
    add(`${verdict} ${reason}`, count);
    add(verdict === "suppressed" ? "suppressed" : "approved", count);
  }
  for (const { reason, count } of look.dead_letters) add(`dead ${reason}`, count);
  add("dead", sum(look.dead_letters));
  for (const { segment, cap, count } of look.caps) add(`cap ${JSON.stringify([segment, cap])}`, count);
  return { at: Date.parse(look.at), all };
}

class Live {
  constructor() {
    this.looks = [];
    this.chart = new Chart(byId("chart"), byId("chart-top"));
    this.said = "";
  }

  /** The rate of a total over the last looks; 0 before the second one. */
  rate(name) {
    const newest = this.looks.at(-1);
    const oldest = this.looks[0];
    const seconds = (newest.at - oldest.at) / 1000;
    return seconds > 0 ? ((newest.all.get(name) ?? 0) - (oldest.all.get(name) ?? 0)) / seconds : 0;
  }

  look(look) {
    const now = totals(look);
    // Counts that fell are those of another process: it was started again.
    const last = this.looks.at(-1);
    if (last && [...last.all].some(([name, count]) => !name.startsWith("cap ") && (now.all.get(name) ?? 0) < count)) this.looks = [];
    this.looks.push(now);
    if (this.looks.length > RATE_OVER_LOOKS + 1) this.looks.shift();
    this.rates();
    this.tables(look);
    byId("weir-version").textContent = look.weir;
    byId("lanes").textContent = `${look.lanes_ready} of ${look.lanes} lanes have their partitions`;
    // What is waited for makes this instance not ready; what is degraded is often shared by all of them.
    const degraded = look.degraded.map(({ message, lane, route }) => {
      const of = route === undefined ? lane : `of the route ${route}`;
      return of === undefined ? message : `lane ${of}: ${message}`;
    });
    const [state, text, notes] = look.waiting.length
      ? ["waiting", "not ready", look.waiting]
      : [degraded.length ? "degraded" : "ready", degraded.length ? "degraded" : "ready", degraded];
    this.state(state, text);
    byId("waiting").hidden = notes.length === 0;
    byId("waiting-title").textContent = look.waiting.length ? "Not ready." : "Degraded.";
    byId("waiting-text").textContent = notes.join("; ");
  }

  rates() {
    const [approved, suppressed, dead] = ["approved", "suppressed", "dead"].map((name) => this.rate(name));
    byId("rate-all").textContent = number(approved + suppressed + dead);
    byId("rate-approved").textContent = number(approved);
    byId("rate-suppressed").textContent = number(suppressed);
    byId("rate-dead").textContent = number(dead);
    this.chart.add({ approved, suppressed, dead });
  }

  tables(look) {
    byId("lag-total").textContent = number(look.lag_total);
    const count = (value) => cell(number(value), { kind: "number" });
    const decided = look.decisions.map(({ verdict, reason, count: all }) => {
      const kind = verdict === "suppressed" ? "suppressed" : "approved";
      return row(cell(verdict, { name: "th", kind: `mark ${kind}` }), cell(reason), count(this.rate(`${verdict} ${reason}`)), count(all));
    });
    const dead = look.dead_letters.map(({ reason, count: all }) =>
      row(cell("dead letter", { name: "th", kind: "mark dead" }), cell(reason), count(this.rate(`dead ${reason}`)), count(all)));
    fill("reasons", [...decided, ...dead], "Nothing is decided yet");

    const caps = look.caps.slice(0, 12).map(({ segment, cap, rule, count: all }) => {
      const name = cell(cap);
      name.append(Object.assign(document.createElement("span"), { className: "rule", textContent: rule }));
      return row(cell(segment ?? "(none)", { name: "th" }), name, count(this.rate(`cap ${JSON.stringify([segment, cap])}`)), count(all));
    });
    fill("caps", caps, "No cap has denied anything yet");

    const most = Math.max(1, ...look.lag.map(({ records }) => records));
    fill("lag", look.lag.map(({ partition, records }) =>
      row(cell(String(partition), { name: "th", kind: "number" }), count(records), bar(records / most))), "No partitions yet");

    this.deferred(look);
    this.limits(look);

    fill("nodes", look.nodes.map((node) => {
      const state = node.trouble ? cell(`away: ${node.trouble}`, { kind: "bad" }) : cell("answers", { kind: "good" });
      const memory = node.used_bytes === null ? "–" : bytes(node.used_bytes) + (node.limit_bytes === null ? "" : ` of ${bytes(node.limit_bytes)}`);
      const told = (value) => cell(value === null ? "–" : number(value), { kind: "number" });
      return row(cell(node.node, { name: "th", kind: "whole" }), state, cell(`${small.format(node.answered_ms)} ms`, { kind: "number" }),
        cell(memory, { kind: "number" }), told(node.replicas), told(node.commands_per_s));
    }), look.nodes_age_s === null ? "The store is embedded in this process" : "No node is known yet");
    byId("nodes-age").textContent = look.nodes_age_s === null ? "" : `looked at ${duration(look.nodes_age_s)} ago`;

    const version = (name, { version: text, age_s: age, confirmed_s: read, refused }, more = "") =>
      row(cell(name, { name: "th" }), cell(text + more), cell(duration(age), { kind: "number" }),
        refused ? cell("failed or refused: see the log", { kind: "bad" }) : cell(`${duration(read)} ago`));
    const { policy, segments } = look;
    fill("versions", [version("Policy", policy, policy.shadow ? " (shadow: everything is sent)" : ""), version("Segments", segments)], "");

    const users = segments.sizes.reduce((all, segment) => all + segment.users, 0);
    fill("segments", segments.sizes.map((segment) =>
      row(cell(segment.name, { name: "th" }), count(segment.users), bar(segment.users / Math.max(1, users)))), "The set has no segments");
  }

  /** Deferred intents by the hour that they are due in; hidden where nothing can be deferred. */
  deferred({ at, deferred }) {
    byId("deferred-card").hidden = deferred === null;
    if (deferred === null) return;
    const most = Math.max(1, ...deferred.hours.map(({ intents }) => intents));
    fill("deferred", deferred.hours.map(({ from, intents }) => {
      const due = Date.parse(from) <= Date.parse(deferred.at) ? "this hour, or overdue" : hour.format(new Date(from));
      return row(cell(due, { name: "th", kind: "whole" }), cell(number(intents), { kind: "number" }), bar(intents / most));
    }), "No intent is deferred");
    const age = Math.max(0, (Date.parse(at) - Date.parse(deferred.at)) / 1000);
    byId("deferred-note").textContent = `${number(deferred.waiting)} at the most, of all instances, counted ${duration(age)} ago`;
  }

  /** Each limit that instances share, with its own words below its name; hidden where there is none. */
  limits({ limits, omitted }) {
    byId("limits-card").hidden = !limits.length;
    fill("limits", limits.map((one) => {
      const named = cell("", { name: "th" });
      const text = (className, textContent) => named.append(Object.assign(document.createElement("span"), { className, textContent }));
      text("whole", one.name);
      if (one.campaign !== undefined) named.append(` of ${one.campaign}`);
      text("rule", [spanOf(one), ...(words[one.kind]?.(one) ?? [])].join("; "));
      const count = (value) => cell(value === null ? "–" : number(value), { kind: "number" });
      const free = one.free_at === null ? "" : `; again ${moment.format(new Date(one.free_at))}`;
      const state = !one.available ? `unknown: ${one.why}` : one.why === null ? "open" : one.why + free;
      return row(named, count(one.limit), count(one.used), count(one.left), count(one.held), bar(one.used === null ? 0 : one.used / Math.max(1, one.limit)),
        cell(state, { kind: one.why === null ? "good" : "bad" }));
    }), "");
    byId("limits-note").textContent = `of all instances${omitted ? `; ${number(omitted)} more budgets are not shown` : ""}`;
  }

  /** Shows a state, and says it aloud when it changes: the numbers themselves would never be silent. */
  state(state, text) {
    byId("state").dataset.state = state;
    if (text === this.said) return;
    this.said = text;
    byId("state-text").textContent = text;
    byId("announce").textContent = `The worker is ${text}`;
  }
}

/** Listens for as long as the page is open; the browser connects again by itself. */
export function follow(live = new Live()) {
  const events = new EventSource("/events");
  events.addEventListener("look", (event) => live.look(JSON.parse(event.data)));
  events.addEventListener("error", () => {
    live.state("away", "away");
    // A browser gives up after an answer that is no stream: too many viewers, or another server at this address.
    if (events.readyState === EventSource.CLOSED) setTimeout(() => follow(live), 5000);
  });
}
