// The box that explains a user: what was sent, what each cap stands at, when the next send is allowed.
import { cell, fill, row } from "./live.js";

const TOKEN = "weir-token";
const byId = (id) => document.getElementById(id);
const announce = (text) => { byId("announce").textContent = text; };

/** A time as the policy's zone has it. */
function clock(text, zone) {
  if (text === null || text === undefined) return "never";
  const shape = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  try {
    return new Intl.DateTimeFormat("sv-SE", { ...shape, timeZone: zone }).format(new Date(text));
  } catch {
    // A zone that the browser does not know.
    return text;
  }
}

const next = (at, asked, zone) => (at !== null && at <= asked ? "now" : clock(at, zone));

function facts(user) {
  const zone = user.timezone;
  const list = [
    ["Segment", user.segment ?? "(none)"],
    ["Held to", user.unlimited ? `${user.held_to}: unlimited` : user.held_to],
    ["Any send allowed", user.quiet_until ? `after quiet hours, ${clock(user.quiet_until, zone)}` : next(user.eligible_at, user.asked_at, zone)],
    ["Sends in the history", String(user.sends.length)],
    ["Times are in", zone],
    ["Policy, segments", `${user.policy_version}, ${user.segments_version}`],
  ];
  if (user.shadow) list.push(["Shadow", "everything is sent"]);
  if (user.clock_trouble) list.push(["Clock", user.clock_trouble]);
  if (user.ahead) list.push(["Clock", "a send is more than 5 minutes ahead of it"]);
  byId("user-facts").replaceChildren(...list.map(([name, text]) => {
    const pair = document.createElement("div");
    pair.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: text }));
    return pair;
  }));
}

function caps(user) {
  const scope = (cap) => [cap.channels?.join(" or "), cap.categories?.join(" or "), cap.each ? `each ${cap.each}` : ""].filter(Boolean).join(", ");
  fill("user-caps", user.caps.map((cap) => {
    const name = cell(cap.name, { name: "th" });
    if (scope(cap)) name.append(Object.assign(document.createElement("span"), { className: "rule", textContent: scope(cap) }));
    const full = cap.used >= cap.limit;
    return row(name, cell(cap.window ? `any ${cap.window}` : `a ${cap.per}`), cell(`${cap.used} of ${cap.limit}`, { kind: full ? "number bad" : "number" }),
      cell(next(cap.next_at, user.asked_at, user.timezone)));
  }), user.unlimited ? "Nothing is counted against this segment" : "No caps");
}

function show(user) {
  facts(user);
  caps(user);
  fill("user-sends", [...user.sends].reverse().map((send) =>
    row(cell(clock(send.at, user.timezone), { name: "th" }), cell(send.channel ?? "–"), cell(send.category ?? "–"), cell(send.campaign ?? "–"),
      cell(String(send.cost), { kind: "number" }))), "Nothing was sent to this user");
  byId("user-answer").hidden = false;
  announce(`User ${user.user_id}: ${user.sends.length} sends, next send allowed ${next(user.eligible_at, user.asked_at, user.timezone)}`);
}

function problem(text) {
  byId("user-problem").textContent = text;
  byId("user-problem").hidden = false;
}

async function ask(id) {
  // A browser takes them for steps in the path, however they are written.
  if (id === "." || id === "..") return problem("A browser cannot ask for this id; weir explain can.");
  const token = sessionStorage.getItem(TOKEN);
  const headers = token === null ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(`/v1/users/${encodeURIComponent(id)}`, { headers, cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return show(body);
  if (answer.status !== 401) return problem(body.detail ?? `The worker answered ${answer.status}`);
  // The token that was kept is wrong, or there is none.
  sessionStorage.removeItem(TOKEN);
  problem(token === null ? "Users' data wants the bearer token of this worker." : "This token is not accepted.");
  byId("token-form").hidden = false;
  byId("token").value = "";
  byId("token").focus();
}

async function explain(id) {
  byId("user-card").hidden = false;
  byId("user-heading").textContent = `User ${id}`;
  for (const part of ["user-problem", "user-answer", "token-form"]) byId(part).hidden = true;
  const button = byId("explain").querySelector("button");
  button.setAttribute("aria-busy", "true");
  try {
    await ask(id);
  } catch {
    problem("The worker does not answer.");
  } finally {
    button.removeAttribute("aria-busy");
  }
}

export function explainUsers() {
  byId("explain").addEventListener("submit", (event) => {
    event.preventDefault();
    // An id may be a space: only what is nothing is not asked for.
    if (byId("user").value !== "") explain(byId("user").value);
  });
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, byId("token").value);
    explain(byId("user").value);
  });
  byId("user-close").addEventListener("click", () => {
    byId("user-card").hidden = true;
    byId("user").focus();
  });
}
