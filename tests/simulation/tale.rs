//! Counts of the situations that runs reached, to check that the seeds reach all of them.

use serde_json::Value;
use weir_redis::RetryCause;

use super::{check::reason, prelude::*};

/// How often each thing happened in one run or in many, and how often Redis answered each error.
#[derive(Debug, Default)]
pub struct Tale(BTreeMap<&'static str, u64>);

impl Tale {
    pub fn unreached(&self) -> Vec<&'static str> {
        // Nothing else writes to the keyspace.
        let beyond = RetryCause::Refused.label();
        self.0.iter().filter(|(what, times)| **times == 0 && **what != beyond).map(|(what, _)| *what).collect()
    }

    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a table of counts")]
pub fn tell(world: &World, asks: &Asks) -> Tale {
    let broker = world.broker.borrow();
    let cluster = lock(&world.keyspace.cluster);
    let outs: Vec<&Out> = broker.visible().collect();
    let approved = || outs.iter().filter(|out| out.is_approval());
    let retried = |is: &dyn Fn(&Out) -> bool| outs.iter().filter(|out| out.intent.retry.is_some() && is(out)).count();
    let envelopes: Vec<(String, Value)> = outs.iter().filter_map(|out| reason(out)).collect();
    let of_reason = |wanted: &str| envelopes.iter().filter(|(reason, _)| reason == wanted).count();
    let of_cap = |name: &str| envelopes.iter().filter(|(_, envelope)| envelope["cap"]["name"] == name).count();
    let deferred = |why| {
        let first = outs.iter().filter(|out| out.intent.log == Log::Input).filter_map(|out| out.deferral());
        first.filter(|deferral| deferral.why == why).count()
    };
    let of_log = |log, is: &dyn Fn(&Out) -> bool| outs.iter().filter(|out| out.intent.log == log && is(out)).count();
    let is_for = |out: &Out, wanted: &str| reason(out).is_some_and(|(reason, _)| reason == wanted);
    let costly = |out: &&&Out| asks.get(&out.intent.first).is_some_and(|ask| ask.cost > 1 && told(out).counts);
    let has_share = |out: &&&Out| {
        let paced = world.setting.paced.filter(|paced| out.to == Destination::Approved(paced.topic()));
        paced.zip(asks.get(&out.intent.first)).is_some_and(|(paced, ask)| paced.reserves(ask))
    };
    let is_added =
        |out: &Out| world.setting.growth.is_some() && out.intent.partition + 1 == broker.partitions(out.intent.log);
    let rebuilds = world.rebuilds.borrow();
    let reported = world.refunds.borrow().all(Log::Input).filter(|record| record.value.contains("took_ms")).count();
    let (became_active, active_users_lost) = {
        let heard = lock(&world.keyspace.heard);
        (heard.told.len(), heard.lost)
    };
    let (budget_calls_refused, budget_grants_answered) = {
        let told = lock(&world.keyspace.tells.told);
        (told.refused, told.granted)
    };
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let reasons = ["budget", "pressure", "unavailable", "expired", "too_early", "quiet_hours", "stopped", "capacity"];
    let reasons = reasons.map(|reason| (reason, of_reason(reason)));
    let counts = [
        ("approved", approved().count()),
        ("suppressed", envelopes.len()),
        ("replays", broker.replays()),
        ("duplicates", of_reason("duplicate")),
        ("forgotten", cluster.ledger.by_failover.len()),
        ("by_day", of_cap("today")),
        ("by_campaign", of_cap("once")),
        ("bypassed", approved().filter(|out| !told(out).counts).count()),
        ("shadowed", approved().filter(|out| told(out).shadow).count()),
        ("later", approved().filter(|out| told(out).later).count()),
        ("costly", approved().filter(costly).count()),
        ("budget_grants", cluster.till.grants),
        ("budget_given_back", cluster.till.given_back),
        ("budget_grants_burnt", cluster.till.grants.saturating_sub(budget_grants_answered)),
        ("budget_calls_refused", budget_calls_refused),
        ("budgets_rebuilt", cluster.till.rebuilt),
        ("budget_clocks_refused", cluster.till.wrong_clocks),
        ("totals_gone", cluster.till.gone),
        ("nodes_returned", cluster.returned),
        ("became_active", became_active),
        ("active_users_lost", active_users_lost),
        ("owed_full", size(world.counted(|metrics| metrics.deferred_full.get()))),
        ("deferred_too_early", deferred(DeferReason::TooEarly)),
        ("deferred_quiet_hours", deferred(DeferReason::QuietHours)),
        ("deferred_cap", deferred(DeferReason::Cap)),
        ("deferred_budget", deferred(DeferReason::Budget)),
        ("deferred_pressure", deferred(DeferReason::Pressure)),
        ("deferred_unavailable", deferred(DeferReason::Unavailable)),
        ("moved_on", of_log(Log::Ring(Ring::Hours), &|_| true)),
        ("released", of_log(Log::Ring(Ring::Minutes), &|out| out.to.is_approved())),
        ("stopped_later", of_log(Log::Ring(Ring::Minutes), &|out| is_for(out, "stopped"))),
        ("expired_later", of_log(Log::Ring(Ring::Minutes), &|out| is_for(out, "expired"))),
        ("zombies", broker.zombies),
        ("batches_halved", size(world.counted(|metrics| metrics.batches_halved.get()))),
        ("jumps", world.jumps.borrow().len()),
        ("rebalances", size(broker.group.rebalances + broker.later.rebalances)),
        ("skipped_at_start", asks.keys().filter(|place| broker.is_skipped(**place)).count()),
        ("added_partitions_read", of_log(Log::Input, &is_added)),
        ("added_partitions_waited_in", of_log(Log::Waiting, &is_added)),
        ("waited", of_log(Log::Waiting, &|out| out.to.is_approved())),
        ("waited_and_suppressed", of_log(Log::Waiting, &|out| out.to == Destination::Suppressed)),
        ("waited_until_edit", of_log(Log::Waiting, &|out| world.rule_at(out.submit.at) != Rule::First)),
        ("waited_until_put_back", of_log(Log::Waiting, &|out| world.is_put_back(out.submit.at))),
        ("reserved", approved().filter(has_share).count()),
        ("permits_lost", size(cluster.limits_lost.permits.iter().map(|(_, permits)| permits).sum())),
        ("admissions", world.service.borrow().given.len()),
        ("admissions_denied", world.service.borrow().denied),
        ("retried", retried(&|out| out.to.is_approved())),
        ("undelivered", retried(&|out| out.to == Destination::Undelivered)),
        ("refunded", cluster.ledger.taken_back.len()),
        ("reported", reported),
        ("names_lost", cluster.names_lost),
        ("restored", size(rebuilds.restored)),
        ("rebuilds", rebuilds.done),
        ("dropped", cluster.ledger.dropped.len()),
        ("frozen_rebuilds", rebuilds.frozen),
        ("names_repaired", rebuilds.names),
        ("wrong_clock", size(world.env.time().refused.load(Relaxed))),
    ];
    let troubles = RetryCause::ALL.iter().map(|cause| (cause.label(), world.keyspace.stats.errors(*cause)));
    let counts = reasons.into_iter().chain(counts).map(|(what, times)| (what, times as u64));
    Tale(counts.chain(troubles).collect())
}
