//! What `weir explain` prints for people.

use std::fmt::Write as _;

use comfy_table::{Table, presets::NOTHING};
use weir_core::{
    basis::{document::value::in_words, shard::IdHash, time::Time, zone::Zone},
    decision::verdict::SuppressReason,
};

use crate::{
    cli::output::{lines, plain},
    limits::{LimitKind, LimitView},
    query::{CampaignView, CapView, Decision, DecisionBudget, DecisionCap, SendView, UserView},
};

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The whole page: the user, what was sent, the caps, and the intent if one was asked about. `may_defer` is whether the worker
/// has topics to defer intents to.
pub(super) fn page(user: &UserView, decision: Option<&Decision>, may_defer: bool) -> String {
    let zone = Zone::named(&user.timezone).unwrap_or_else(Zone::utc);
    let page = ExplainPage { user, zone, now: user.asked_at, may_defer };
    let mut parts = vec![page.head(), page.sends(), page.caps()];
    parts.extend(decision.map(|decision| page.decision(decision)));
    parts.extend(decision.and_then(|decision| page.limits(&decision.limits)));
    parts.join("\n")
}

/// Without an intent, under a policy with limits that instances share.
pub(super) const LIMITS: &str =
    "The policy has limits that all users share; --intent FILE reports what they say of an intent.\n";

struct ExplainPage<'a> {
    user: &'a UserView,
    zone: Zone,
    now: Time,
    may_defer: bool,
}

impl ExplainPage<'_> {
    fn head(&self) -> String {
        let user = self.user;
        let mut head = String::new();
        let segment = user.segment.as_ref().map_or("in no segment".to_owned(), |name| format!("in segment {name}"));
        let _ = writeln!(head, "User {} is {segment} (set {}).", plain(&user.user_id), user.segments_version);
        if user.segments.len() > 1 {
            let _ = writeln!(head, "Also in {}: the set's first one counts.", user.segments[1..].join(", "));
        }
        let unnamed = if user.segment.is_some() && user.held_to == "default" {
            ", because the policy does not name this segment"
        } else {
            ""
        };
        let _ = writeln!(head, "Held to [{}] of policy {}{unnamed}.", user.held_to, user.policy_version);
        if user.shadow {
            head.push_str("The policy is in shadow mode (shadow = true): weir approves every intent, and it counts.\n");
        }
        let now = self.now.timestamp().to_zoned(self.zone.time_zone().clone());
        let _ =
            writeln!(head, "Times are {}; now it is {}.", self.zone.name(), now.strftime("%Y-%m-%d %H:%M:%S (UTC%:z)"));
        if let Some(trouble) = &user.clock_trouble {
            let _ = writeln!(head, "WARNING: {trouble}. Times below that are reckoned from the clock are wrong.");
        }
        if user.ahead {
            head.push_str(
                "A send is more than 5 minutes in the future: a worker's clock was wrong when it was recorded.\n",
            );
        }
        head
    }

    fn sends(&self) -> String {
        let mut sends = self.history();
        if self.may_defer {
            sends.push_str("Deferred intents are not listed: they wait in Kafka, and the history is in Redis.\n");
        }
        sends
    }

    fn history(&self) -> String {
        if self.user.sends.is_empty() {
            return "No sends within the history.\n".to_owned();
        }
        let mut table = table(["WHEN", "", "CHANNEL", "CATEGORY", "CAMPAIGN", "COST", "ID HASH"]);
        for send in &self.user.sends {
            let SendView { at, channel, category, campaign, cost, id_hash } = send;
            let name =
                |name: &Option<String>| name.as_deref().map_or_else(|| "-".to_owned(), |name| plain(name).into_owned());
            table.add_row([
                self.shown(*at),
                self.beside(*at),
                name(channel),
                name(category),
                name(campaign),
                cost.to_string(),
                id_hash.clone(),
            ]);
        }
        let count = self.user.sends.len();
        let sends = if count == 1 { "send" } else { "sends" };
        format!("{count} {sends} within the history, oldest first:\n\n{}", lines(&table))
    }

    fn caps(&self) -> String {
        let user = self.user;
        if user.unlimited {
            return "Unlimited: no cap applies to this user, and the next send is allowed now.\n".to_owned();
        }
        let mut table = table(["CAP", "USED", "LIMIT", "WINDOW", "OF", "NEXT SEND", ""]);
        for cap in &user.caps {
            let (next, beside) = self.next(cap.next_at);
            let [used, limit] = [cap.used, cap.limit].map(|number| number.to_string());
            let window = span(cap.window.as_deref(), cap.per.as_deref());
            table.add_row([cap.name.clone(), used, limit, window, of(cap), next, beside]);
            for CampaignView { campaign, used, next_at } in cap.campaigns.iter().flatten() {
                let (next, beside) = self.next(*next_at);
                let campaign =
                    campaign.as_ref().map_or("  without one".to_owned(), |name| format!("  {}", plain(name)));
                table.add_row([String::new(), used.to_string(), String::new(), String::new(), campaign, next, beside]);
            }
        }
        format!("The caps, and when each allows the next send of cost 1:\n\n{}\n{}", lines(&table), self.eligible())
    }

    /// When what is allowed, in a sentence or two.
    fn eligible(&self) -> String {
        let UserView { eligible_at, soonest_at, quiet_until, .. } = self.user;
        let mut text = if eligible_at == soonest_at {
            format!("The caps allow the next send {}.\n", self.when(*eligible_at))
        } else {
            let (some, any) = (self.when(*soonest_at), self.when(*eligible_at));
            format!("The caps allow some sends {some}; of any channel, category and campaign {any}.\n")
        };
        if let Some(end) = quiet_until {
            let _ = writeln!(text, "Sends that quiet hours apply to are allowed {}.", self.when(Some(*end)));
        }
        text
    }

    fn when(&self, at: Option<Time>) -> String {
        match at {
            None => "never".to_owned(),
            Some(at) if at <= self.now => "now".to_owned(),
            Some(at) => format!("from {} on ({})", self.shown_up(at), self.beside(at)),
        }
    }

    fn decision(&self, decision: &Decision) -> String {
        let intent_id = plain(&decision.intent_id);
        let Some(reason) = decision.reason else {
            let why = if decision.bypassed { ": a bypass of the policy matches it, so no cap applies" } else { "" };
            return format!("Intent {intent_id} would be approved now{why}.\n");
        };
        let why = self.why(decision, reason);
        if let Some(due) = decision.deferred_until.filter(|_| self.may_defer) {
            let (until, beside) = (self.shown_up(due), self.beside(due));
            return format!(
                "Intent {intent_id} would be deferred until {until} ({beside}), reason {}: {why}.\n",
                reason.as_str()
            );
        }
        let until = match decision.eligible_at {
            Some(at) => format!(" This reason holds until {} ({}).", self.shown_up(at), self.beside(at)),
            None => String::new(),
        };
        let would = if self.user.shadow {
            "would be approved, because the policy is in shadow mode; otherwise suppressed"
        } else {
            "would be suppressed now"
        };
        format!("Intent {intent_id} {would}, reason {}: {why}.{until}\n", reason.as_str())
    }

    fn why(&self, decision: &Decision, reason: SuppressReason) -> String {
        match (reason, &decision.cap) {
            (SuppressReason::Cap, Some(DecisionCap { name, limit, window, per, used })) => {
                let window = span(window.as_deref(), per.as_deref());
                let never = if decision.eligible_at.is_none() { ", and it never fits" } else { "" };
                format!("{used} of the {limit} that cap {name} allows {window} are used{never}")
            }
            (SuppressReason::Budget, _) => denying_budget(decision),
            (SuppressReason::Duplicate, _) => {
                let id = format!("{:012x}", IdHash::of(&decision.intent_id).0);
                let sent = self.user.sends.iter().find(|send| send.id_hash == id);
                let when = sent.map(|send| format!(", at {} ({})", self.shown(send.at), self.beside(send.at)));
                format!("{}{}", reason.in_words(), when.unwrap_or_default())
            }
            _ => reason.in_words().to_owned(),
        }
    }

    /// The limits that the intent takes from, and what each says of it; `None` where from none.
    fn limits(&self, limits: &[LimitView]) -> Option<String> {
        if limits.is_empty() {
            return None;
        }
        let mut table = table(["LIMIT", "NAME", "USED", "MOST", "LEFT", "OVER", "CAMPAIGN", "ALLOWS IT", ""]);
        for limit in limits {
            let LimitView { kind, name, campaign, span, limit, used, left, free_at, why, available, .. } = limit;
            let number = |number: &Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
            let (allows, beside) = match (available, why) {
                (false, why) => (format!("unknown: {}", why.as_deref().unwrap_or_default()), String::new()),
                (true, None) => ("now".to_owned(), String::new()),
                (true, Some(_)) => self.next(*free_at),
            };
            let campaign = plain(campaign.as_deref().unwrap_or("all")).into_owned();
            let [used, limit, left] = [used, limit, left].map(number);
            let kind = kind.as_str().to_owned();
            table.add_row([kind, name.clone(), used, limit, left, span.to_string(), campaign, allows, beside]);
        }
        let mut text = format!("The limits that it takes from, over all users and instances:\n\n{}", lines(&table));
        let of_budgets = || limits.iter().filter(|limit| limit.kind == LimitKind::Budget);
        if of_budgets().next().is_some() {
            text.push_str("\nUsed tokens include those in leases: an instance may hold some that are not spent.\n");
        }
        if of_budgets().any(|budget| !budget.available) {
            text.push_str("WARNING: a budget cannot be read from Redis; the decision above does not consider it.\n");
        }
        Some(text)
    }

    fn next(&self, next_at: Option<Time>) -> (String, String) {
        match next_at {
            None => ("never".to_owned(), String::new()),
            Some(at) if at <= self.now => ("now".to_owned(), String::new()),
            Some(at) => (self.shown_up(at), self.beside(at)),
        }
    }

    fn shown(&self, at: Time) -> String {
        at.timestamp().to_zoned(self.zone.time_zone().clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// A time from when on something holds: up to the next whole second, at which it does.
    fn shown_up(&self, at: Time) -> String {
        self.shown(at.plus(SECOND_MS - 1))
    }

    /// `in 3h 12m` or `3h 12m ago`: to the second below an hour, to the minute below a day, else to the hour.
    fn beside(&self, at: Time) -> String {
        let away_ms = at.millis() - self.now.millis();
        let unit_ms = match away_ms.abs() {
            0..HOUR_MS => SECOND_MS,
            ms if ms < 24 * HOUR_MS => MINUTE_MS,
            _ => HOUR_MS,
        };
        if away_ms > 0 {
            format!("in {}", in_words((away_ms + unit_ms - 1) / unit_ms * unit_ms))
        } else {
            format!("{} ago", in_words(-away_ms / unit_ms * unit_ms))
        }
    }
}

fn denying_budget(decision: &Decision) -> String {
    let Some(DecisionBudget { name, limit, used }) = &decision.budget else {
        return SuppressReason::Budget.in_words().to_owned();
    };
    let found = decision.limits.iter().find(|limit| limit.kind == LimitKind::Budget && limit.name == *name);
    let window = found.map_or(String::new(), |budget| format!(" {}", budget.span));
    let campaign = found.and_then(|budget| budget.campaign.as_deref());
    let campaign = campaign.map_or(String::new(), |campaign| format!(" for campaign {}", plain(campaign)));
    let never = if decision.eligible_at.is_none() { ", and it never frees" } else { "" };
    format!("{used} of the {limit} that budget {name} allows{campaign}{window} are used{never}")
}

fn span(window: Option<&str>, per: Option<&str>) -> String {
    match (window, per) {
        (Some(length), _) => format!("in any {length}"),
        (None, Some(period)) => format!("per {period}"),
        (None, None) => String::new(),
    }
}

/// What a cap speaks of: `channel push, each campaign`.
fn of(cap: &CapView) -> String {
    let names =
        |what: &str, names: &Option<Vec<String>>| names.as_ref().map(|names| format!("{what} {}", names.join(" or ")));
    let each = cap.each.as_ref().map(|what| format!("each {what}"));
    let parts = [names("channel", &cap.channels), names("category", &cap.categories), each];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") }
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(header);
    table
}

#[cfg(test)]
mod tests;
