//! The promise: a budget that was lost with its node, or went back with it, never grants again what is spent.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::{
    clock::ProcessClock,
    kafka::{Api, Fate, Kafka, Moment, Trap},
    process::{Exit, Guarded, output},
    redis::{RedisCluster, RedisServer},
    wait_until,
    worker::Worker,
};
use weir_core::{basis::shard::slot_of_shard, limit::budget::BudgetId};

use super::rebuild::{kill, start};
use crate::support::{
    DEADLINE, Decision, Scene,
    http::{metric, wait_whole},
    outcome::{intent, zone_of_noon},
    said, stop, unlimited,
};

const SHARDS: u16 = 64;
/// How long the tests let earlier decisions become visible: no worker hangs in them.
const SETTLE: [&str; 2] = ["--settle", "3s"];

/// What runs beside a rebuild that counts budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Nothing: the worker was killed, and its leases with it.
    Nobody,
    /// A worker that may hold leases: a rebuild waits for a minute until they have ended.
    Worker,
}

struct Lossy {
    cluster: RedisCluster,
    scene: Scene,
    worker: Worker,
    /// The node with the tables of names.
    tables: usize,
}

impl Lossy {
    /// `budgets` gets names of budgets that are on one node, which has not the tables of names; each begins with its text.
    fn new(name: &str, stems: &[&str], budgets: impl FnOnce(&[String]) -> String) -> (Self, Vec<String>, usize) {
        let cluster = RedisCluster::start(3, 0).unwrap();
        let mut scene = Scene::on_redis(cluster.nodes(), name, 2, "version = \"0\"\n");
        scene.set("WEIR__REDIS__TIMEOUT", "5s");
        let tables = cluster.owner_of_key(&scene.name).unwrap();
        let lost = cluster.primaries().unwrap().into_iter().find(|node| *node != tables).unwrap();
        let on_it = |name: &String| node_of(&cluster, &id(name, None)) == lost;
        let name = |stem: &&str| (0..).map(|number| format!("{stem}{number}")).find(on_it).unwrap();
        let names: Vec<String> = stems.iter().map(name).collect();
        let head = format!("version = \"1\"\ntimezone = {:?}\n[default]\ncaps = \"unlimited\"\n", zone_of_noon());
        scene.write_policy(&(head + &budgets(&names)));
        let worker = scene.ready("only");
        (Self { cluster, scene, worker, tables }, names, lost)
    }

    /// So many intents of a campaign, with ids that begin so.
    fn publish(&self, name: &str, campaign: &str, count: usize) {
        self.scene.publish_wave(name, 10_000..10_000 + count, &json!({"campaign": campaign}));
    }

    /// The same, and waits until all are decided.
    fn decide(&mut self, name: &str, campaign: &str, count: usize) {
        self.publish(name, campaign, count);
        self.drain();
    }

    fn drain(&mut self) {
        self.scene.drain(&mut self.worker);
    }

    /// Has all approved records deleted, as retention does.
    fn expire(&self) {
        let topic = self.scene.topic("approved");
        for (partition, end) in (0..).zip(self.scene.kafka.end_offsets(&topic).unwrap()) {
            self.scene.kafka.delete_records(&topic, partition, end).unwrap();
        }
    }

    /// What a rebuild makes of budgets where these nodes lose everything while no worker runs, so that nothing has to settle; then another
    /// worker runs.
    fn lose(&mut self, nodes: &[usize], scope: &[&str]) -> (i32, BTreeMap<String, Value>) {
        stop(&mut self.worker);
        nodes.iter().for_each(|node| drop(self.cluster.cli(*node, &["FLUSHALL"]).unwrap()));
        let rebuilt = self.rebuild(&[scope, &["--settle", "0s"][..]].concat());
        self.worker = self.scene.worker("only");
        wait_whole(&self.worker);
        rebuilt
    }

    /// What a rebuild makes of budgets that are not open; then a worker runs.
    fn count(&mut self, beside: Beside, args: &[&str]) -> (i32, BTreeMap<String, Value>) {
        if beside == Beside::Worker {
            return self.rebuild(args);
        }
        self.worker.kill();
        let rebuilt = self.rebuild(&[args, &["--settle", "0s"][..]].concat());
        self.worker = self.scene.ready("only");
        rebuilt
    }

    /// Offers some of a campaign, and waits until its budget is found to be closed.
    fn offer_in_vain(&self, campaign: &str, budget: &str) {
        self.publish(&format!("{campaign} after"), campaign, 10);
        let refused = format!("{budget} of campaign {campaign}: it is closed");
        wait_until(DEADLINE, "the closed budget is asked for", || self.worker.log().contains(&refused));
        assert_eq!(self.scene.approved(&format!("{campaign} after")), 0);
    }

    fn wipe(&self, node: usize) {
        assert_ne!(node, self.tables);
        self.cluster.cli(node, &["FLUSHALL"]).unwrap();
        wait_until(DEADLINE, "the loss is noticed", || metric(&self.worker, "weir_shards_lost", "").unwrap() > 0.0);
    }

    /// The exit code, and what became of budgets: name -> line.
    fn rebuild(&self, args: &[&str]) -> (i32, BTreeMap<String, Value>) {
        let settle: &[&str] = if args.contains(&"--settle") { &[] } else { &SETTLE };
        let mut rebuild = self.scene.command(&["rebuild", "--output", "json"]);
        let rebuilt = output(rebuild.args(args).args(settle)).unwrap();
        let summary: Value =
            serde_json::from_slice(&rebuilt.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&rebuilt)));
        (rebuilt.status.code().unwrap(), lines_of(&summary))
    }

    /// The key of a budget, and its node.
    fn key(&self, name: &str) -> (usize, String) {
        let node = node_of(&self.cluster, &id(name, None));
        let pattern = format!("{}:*b{}", self.scene.name, id(name, None).key_name());
        (node, self.cluster.cli(node, &["KEYS", &pattern]).unwrap().trim().to_owned())
    }

    /// Offers more until exactly so many are approved, of the ids that begin so; and no more than that, however many are offered.
    /// Tokens of a lease that nobody claimed in time are granted again to later ones.
    fn spend(&mut self, name: &str, campaign: &str, limit: usize) {
        let mut waves = 0;
        wait_until(DEADLINE, "all of the budget is approved", || {
            waves += 1;
            self.decide(&format!("{name} wave {waves}"), campaign, 50);
            self.scene.approved(name) >= limit
        });
        self.decide(&format!("{name} last"), campaign, 200);
        assert_eq!(self.scene.approved(name), limit, "{name}");
    }
}

/// What became of budgets: name -> line.
fn lines_of(summary: &Value) -> BTreeMap<String, Value> {
    let lines = summary["budgets"].as_array().unwrap().iter();
    lines.map(|line| (line["budget"].as_str().unwrap().to_owned(), line.clone())).collect()
}

fn id(name: &str, campaign: Option<&str>) -> BudgetId {
    BudgetId { name: name.into(), campaign: campaign.map(Into::into) }
}

fn node_of(cluster: &RedisCluster, budget: &BudgetId) -> usize {
    cluster.owner_of(slot_of_shard(budget.shard(SHARDS), SHARDS)).unwrap()
}

fn line(outcome: &str, used: u64) -> impl Fn(&Value) -> bool {
    move |line| line["outcome"] == outcome && line["used"] == used
}

/// A budget in total, of the campaign of the same name.
fn total(name: &str, limit: usize) -> String {
    format!("[[budgets]]\nname = {name:?}\ncampaign = {name:?}\nlimit = {limit}\ntotal = true\nbest_effort = true\n")
}

#[test]
fn budgets_of_a_wiped_node_wait_for_the_rebuild_and_grant_only_what_was_left() {
    wipe_a_node("rebuild-budgets", Beside::Nobody);
}

#[test]
#[ignore = "waits for leases to end, a minute: cargo xtask ci --extent everything"]
fn budgets_of_a_wiped_node_grant_only_what_was_left_where_a_worker_runs_beside_the_rebuild() {
    wipe_a_node("rebuild-beside", Beside::Worker);
}

fn wipe_a_node(name: &str, beside: Beside) {
    let (mut lossy, names, lost) = Lossy::new(name, &["spent", "total", "month", "hours", "each"], |names| {
        let of = |at: usize, more: &str| {
            let name = &names[at];
            format!("[[budgets]]\nname = {name:?}\ncampaign = {name:?}\nlimit = 1_000\nbest_effort = true\n{more}\n")
        };
        let each = format!(
            "[[budgets]]\nname = {:?}\ncampaign = [\"a\", \"b\", \"c\", \"d\"]\neach = \"campaign\"\nlimit = 100\nper = \"month\"\nbest_effort = true\n",
            names[4]
        );
        [total(&names[0], 300), total(&names[1], 1_000), of(2, "per = \"month\""), of(3, "window = \"5h\""), each]
            .concat()
    });
    let campaigns = ["a", "b", "c", "d"];
    let on_it = |campaign: &&str| node_of(&lossy.cluster, &id(&names[4], Some(campaign))) == lost;
    let lost_campaigns: Vec<&str> = campaigns.into_iter().filter(on_it).collect();
    lossy.publish("spent", &names[0], 500);
    names[1..4].iter().for_each(|name| lossy.publish(&format!("{name} before"), name, 400));
    campaigns.iter().for_each(|campaign| lossy.publish(&format!("each {campaign} before"), campaign, 60));
    lossy.drain();
    assert_eq!(lossy.scene.approved("spent"), 300);

    lossy.wipe(lost);
    lossy.publish("spent again", &names[0], 500);
    names[1..4].iter().for_each(|name| lossy.publish(&format!("{name} after"), name, 1_200));
    campaigns.iter().for_each(|campaign| lossy.publish(&format!("each {campaign} after"), campaign, 60));
    // A run that is killed before it has written them leaves them as they are: lost.
    let killed = start(&lossy.scene, &["--settle", "10m"]);
    let progress = format!("{0}:{{{0}}}:rebuild", lossy.scene.name);
    wait_until(DEADLINE, "it has put sends back", || {
        lossy.cluster.cli(lossy.tables, &["HVALS", &progress]).unwrap().lines().count() > 2
    });
    kill(killed, &lossy.scene, &lossy.cluster);
    assert_eq!(lossy.scene.approved("spent"), 300, "nothing is granted meanwhile");

    let (code, lines) = lossy.count(beside, &[]);
    assert_eq!(code, 0, "{lines:?}");
    assert!(line("restored", 300)(&lines[&names[0]]), "{lines:?}");
    for name in &names[1..4] {
        // Some may have been approved from the lease that was held when the node was wiped.
        let used = lines[name]["used"].as_u64().unwrap();
        assert!(lines[name]["outcome"] == "restored" && (400..1_000).contains(&used), "{lines:?}");
    }
    for campaign in campaigns {
        let found = lines.get(&id(&names[4], Some(campaign)).to_string());
        assert_eq!(found.is_some(), lost_campaigns.contains(&campaign), "{campaign}: {lines:?}");
    }
    wait_whole(&lossy.worker);
    lossy.drain();
    assert_eq!(lossy.scene.approved("spent"), 300, "what is spent in total stays spent");
    names[1..4].iter().for_each(|name| lossy.spend(name, name, 1_000));
    // What a killed worker held of budgets of other nodes is lost until they are counted, too.
    let (counted, others): (Vec<&str>, Vec<&str>) =
        campaigns.into_iter().partition(|campaign| beside == Beside::Worker || lost_campaigns.contains(campaign));
    counted.iter().for_each(|campaign| lossy.spend(&format!("each {campaign}"), campaign, 100));

    // Again: all are counted anew, and hold what they held.
    let (code, lines) = lossy.lose(&[], &["--all"]);
    assert!(code == 0 && line("recounted", 300)(&lines[&names[0]]), "{lines:?}");
    names[1..4].iter().for_each(|name| assert!(line("recounted", 1_000)(&lines[name]), "{lines:?}"));
    for campaign in campaigns {
        let used = if counted.contains(&campaign) { 100 } else { lossy.scene.approved(&format!("each {campaign}")) };
        let found = &lines[&id(&names[4], Some(campaign)).to_string()];
        assert!(line("recounted", used as u64)(found), "{campaign}: {used}, {lines:?}");
    }
    others.iter().for_each(|campaign| lossy.spend(&format!("each {campaign}"), campaign, 100));
    lossy.decide("spent once more", &names[0], 10);
    assert_eq!(lossy.scene.approved("spent"), 300);
}

#[test]
fn budgets_of_a_node_that_came_back_with_an_old_snapshot_grant_no_more_than_was_left_once_they_are_counted_anew() {
    const LIMIT: usize = 1_000;
    let campaigns: Vec<String> = (0..40).map(|number| format!("c{number}")).collect();
    let (mut lossy, names, lost) = Lossy::new("rebuild-snapshot", &["total", "each"], |names| {
        let each = format!("[[budgets]]\nname = {:?}\ncampaign = {campaigns:?}\neach = \"campaign\"\n", names[1]);
        [total(&names[0], LIMIT), each, format!("limit = {LIMIT}\ntotal = true\nbest_effort = true\n")].concat()
    });
    let of = |campaign: &str| id(&names[1], Some(campaign));
    let campaign = campaigns.iter().find(|campaign| node_of(&lossy.cluster, &of(campaign)) == lost).unwrap();
    let both = [(names[0].as_str(), names[0].as_str()), ("each", campaign.as_str())];
    both.iter().for_each(|(name, campaign)| lossy.publish(&format!("{name} before"), campaign, 200));
    lossy.drain();
    lossy.cluster.cli(lost, &["SAVE"]).unwrap();
    both.iter().for_each(|(name, campaign)| lossy.spend(name, campaign, LIMIT));

    lossy.cluster.kill(lost);
    lossy.cluster.restart(lost).unwrap();
    lossy.cluster.wait_whole().unwrap();
    let (node, key) = lossy.key(&names[0]);
    let held: usize = lossy.cluster.cli(node, &["HGET", &key, "t"]).unwrap().trim().parse().unwrap();
    assert!(held < LIMIT, "the snapshot is older: {held}");
    // The other worker does not remember that they are spent.
    let (code, lines) = lossy.lose(&[], &["--all"]);
    assert_eq!(code, 0, "{lines:?}");
    for name in [names[0].clone(), of(campaign).to_string()] {
        assert!(line("recounted", LIMIT as u64)(&lines[&name]), "{lines:?}");
    }
    for (name, campaign) in both {
        lossy.decide(&format!("{name} after"), campaign, 500);
        assert_eq!(lossy.scene.approved(name), LIMIT, "{name}");
    }
}

#[test]
fn a_budget_that_the_topic_does_not_reach_back_for_stays_closed_until_a_person_says_what_was_used() {
    let (mut lossy, names, lost) = Lossy::new("rebuild-short", &["total", "given"], |names| {
        [total(&names[0], 1_000), total(&names[1], 1_000)].concat()
    });
    names.iter().for_each(|name| lossy.publish(&format!("{name} before"), name, 400));
    lossy.drain();
    // Some of them are gone; the rest is what a rebuild can count.
    let topic = lossy.scene.topic("approved");
    let end = lossy.scene.kafka.end_offsets(&topic).unwrap()[0];
    let before = lossy.scene.decisions();
    lossy.scene.kafka.delete_records(&topic, 0, end / 2).unwrap();
    let after = lossy.scene.decisions();
    let gone = |name: &str| {
        let count = |all: &BTreeMap<String, Decision>| all.keys().filter(|id| id.starts_with(name)).count();
        count(&before) - count(&after)
    };
    let [gone_total, gone_given] = [gone(&names[0]), gone(&names[1])];
    assert!(gone_total + gone_given > 0);
    let refused = lossy.rebuild(&["--budget", &names[0]]);
    assert!(refused.0 == 1 && refused.1[&names[0]]["outcome"] == "unchanged", "{refused:?}");

    let used = format!("{}={gone_given}", names[1]);
    let (code, lines) = lossy.lose(&[lost], &["--budget-used", &used]);
    assert_eq!(code, 1, "{lines:?}");
    assert!(line("restored", 400)(&lines[&names[1]]), "{lines:?}");
    assert!(line("closed", 400 - gone_total as u64)(&lines[&names[0]]), "{lines:?}");
    assert_eq!(lines[&names[0]]["command"], format!("weir rebuild --budget-used {}=N", names[0]));
    lossy.decide(&format!("{} after", names[1]), &names[1], 1_000);
    lossy.spend(&names[1], &names[1], 1_000 - gone_given);
    lossy.publish(&format!("{} after", names[0]), &names[0], 1_000);
    let refused = || lossy.worker.log().contains("are no longer on the approved topic");
    wait_until(DEADLINE, "the closed budget is asked for", refused);
    assert_eq!(lossy.scene.approved(&format!("{} after", names[0])), 0, "it is closed");
    let (code, lines) = lossy.rebuild(&[]);
    assert!(code == 1 && lines[&names[0]]["outcome"] == "closed", "{lines:?}");

    let used = format!("{}={gone_total}", names[0]);
    let (code, lines) = lossy.rebuild(&["--budget-used", &used]);
    assert!(code == 0 && line("opened", gone_total as u64)(&lines[&names[0]]), "{lines:?}");
    lossy.drain();
    lossy.spend(&names[0], &names[0], 1_000 - gone_total);
    // It is not added twice.
    let (code, lines) = lossy.rebuild(&["--budget-used", &used]);
    assert!(code == 1 && lines[&names[0]]["outcome"] == "unchanged", "{lines:?}");
}

/// A budget of each campaign, whatever its name.
fn each(name: &str, limit: usize, span: &str) -> String {
    format!("[[budgets]]\nname = {name:?}\neach = \"campaign\"\nlimit = {limit}\n{span}\nbest_effort = true\n")
}

#[test]
fn a_campaign_that_the_table_of_names_alone_knows_stays_closed_and_one_that_it_does_not_know_is_new() {
    const LIMIT: usize = 100;
    let (mut lossy, names, lost) =
        Lossy::new("rebuild-table", &["each"], |names| each(&names[0], LIMIT, "total = true"));
    let name = &names[0];
    let on_it = |stem: &str| {
        let mut campaigns = (0..).map(|number| format!("{stem}{number}"));
        campaigns.find(|campaign| node_of(&lossy.cluster, &id(name, Some(campaign))) == lost).unwrap()
    };
    let (old, new) = (on_it("old"), on_it("new"));
    lossy.decide("old before", &old, 60);
    lossy.expire();

    let (code, lines) = lossy.lose(&[lost], &[]);
    let of_old = id(name, Some(&old)).to_string();
    assert!(code == 1 && line("closed", 0)(&lines[&of_old]) && lines.len() == 1, "{lines:?}");
    lossy.spend("new", &new, LIMIT);
    lossy.offer_in_vain(&old, name);
    let (code, lines) = lossy.rebuild(&["--budget-used", &format!("{name}/{old}=60")]);
    assert!(code == 0 && line("opened", 60)(&lines[&of_old]), "{lines:?}");
    lossy.drain();
    lossy.spend("old", &old, LIMIT - 60);
}

#[test]
fn a_rebuild_keeps_no_more_totals_of_campaigns_than_a_shard_may_have_and_the_others_stay_spent() {
    const LIMIT: usize = 100;
    let (mut lossy, names, lost) =
        Lossy::new("rebuild-many", &["each"], |names| each(&names[0], LIMIT, "total = true"));
    let name = &names[0];
    let of = |campaign: &str| id(name, Some(campaign));
    let mut all = (0..).map(|number| format!("c{number}"));
    let first = all.find(|campaign| node_of(&lossy.cluster, &of(campaign)) == lost).unwrap();
    let of_shard = all.filter(|campaign| of(campaign).shard(SHARDS) == of(&first).shard(SHARDS));
    let campaigns: Vec<String> = of_shard.take(3).collect();
    let [first, busy, last] = campaigns.as_slice() else { panic!("{campaigns:?}") };
    campaigns.iter().for_each(|campaign| lossy.decide(&format!("{campaign} before"), campaign, 10));
    lossy.expire();
    lossy.decide("busy", busy, 20);

    // One for each shard.
    lossy.scene.set("WEIR__REDIS__MAX_TOTALS", SHARDS.to_string());
    let (code, lines) = lossy.lose(&[lost], &[]);
    assert!(code == 1 && line("closed", 20)(&lines[&of(busy).to_string()]) && lines.len() == 1, "{lines:?}");
    for campaign in [first, last] {
        let name = format!("{campaign} after");
        lossy.decide(&name, campaign, 10);
        assert_eq!(lossy.scene.approved(&name), 0, "{name}: it stays spent");
    }
    lossy.offer_in_vain(busy, name);

    let (named, used) = (format!("{name}/{last}"), format!("{name}/{last}=10"));
    let (code, lines) = lossy.rebuild(&["--budget-used", &used]);
    let told = &lines[&of(last).to_string()];
    assert!(code == 1 && told["message"].as_str().unwrap().contains("had to make room"), "{lines:?}");
    let of_busy = format!("{name}/{busy}=10");
    let args = ["--budget", &named, "--budget-used", &used, "--budget-used", &of_busy];
    let (code, lines) = lossy.count(Beside::Nobody, &args);
    assert!(code == 0 && line("recounted", 10)(&lines[&of(last).to_string()]), "{lines:?}");
    lossy.spend("again", last, LIMIT - 10);
}

#[test]
fn after_a_total_loss_campaigns_whose_records_are_gone_stay_closed_until_a_person_says_what_they_have_used() {
    const LIMIT: usize = 100;
    let (mut lossy, names, _) = Lossy::new("rebuild-unknown", &["total", "hours", "named"], |names| {
        let of = [each(&names[0], LIMIT, "total = true"), each(&names[1], 10 * LIMIT, "window = \"5h\"")].concat();
        of + &each(&names[2], LIMIT, "campaign = [\"spring\", \"summer\"]\ntotal = true")
    });
    let of_named = |campaign: &str| id(&names[2], Some(campaign)).to_string();
    let of_any = &names[..2];
    lossy.decide("spring before", "spring", 60);
    lossy.expire();
    lossy.decide("summer before", "summer", 60);

    let (code, lines) = lossy.lose(&lossy.cluster.primaries().unwrap(), &["--all"]);
    assert_eq!(code, 1, "{lines:?}");
    let unknown = |name: &str| format!("{name} of campaigns that nothing names");
    // The policy names its campaigns.
    assert!(line("closed", 0)(&lines[&of_named("spring")]), "no record names it: {lines:?}");
    assert!(line("closed", 60)(&lines[&of_named("summer")]), "{lines:?}");
    for name in of_any {
        let found = &lines[&unknown(name)];
        let command = format!(
            "weir rebuild --budget-used {name}/CAMPAIGN=N for each that has used some, then weir rebuild --new-campaigns {name}"
        );
        assert!(found["outcome"] == "closed" && found["command"] == command, "{lines:?}");
        assert!(line("closed", 60)(&lines[&id(name, Some("summer")).to_string()]), "{lines:?}");
    }
    lossy.offer_in_vain("spring", &names[0]);
    let used = [("spring", 60), ("summer", 0)].into_iter();
    let used = used.flat_map(|(campaign, used)| names.iter().map(move |name| format!("{name}/{campaign}={used}")));
    let used: Vec<String> = used.collect();
    let args: Vec<&str> = used.iter().flat_map(|used| ["--budget-used", used.as_str()]).collect();
    let (code, lines) = lossy.rebuild(&args);
    assert!(code == 0 && lines.len() == 6 && lines.values().all(|line| line["outcome"] == "opened"), "{lines:?}");
    assert!(line("opened", 60)(&lines[&of_named("spring")]), "{lines:?}");
    lossy.drain();
    assert_eq!(lossy.scene.approved("spring after"), 10);

    lossy.offer_in_vain("autumn", &names[0]);
    let (code, lines) = lossy.rebuild(&["--new-campaigns", &names[0], "--new-campaigns", &names[1]]);
    assert!(code == 0 && of_any.iter().all(|name| line("opened", 0)(&lines[&unknown(name)])), "{lines:?}");
    lossy.drain();
    lossy.spend("spring", "spring", LIMIT - 60);
    lossy.spend("summer", "summer", LIMIT);
    lossy.spend("autumn", "autumn", LIMIT);
}

#[test]
fn a_campaign_that_came_after_a_snapshot_and_whose_records_are_gone_stays_closed_once_all_is_rebuilt() {
    const LIMIT: usize = 100;
    let (mut lossy, names, _) =
        Lossy::new("rebuild-old-names", &["each"], |names| each(&names[0], LIMIT, "total = true"));
    let name = &names[0];
    lossy.decide("early before", "early", 60);
    let nodes = lossy.cluster.primaries().unwrap();
    nodes.iter().for_each(|node| drop(lossy.cluster.cli(*node, &["SAVE"]).unwrap()));
    lossy.spend("late", "late", LIMIT);
    lossy.expire();

    // One that runs would see that the table lacks a number which it was given.
    stop(&mut lossy.worker);
    nodes.iter().for_each(|node| lossy.cluster.kill(*node));
    nodes.iter().for_each(|node| lossy.cluster.restart(*node).unwrap());
    lossy.cluster.wait_whole().unwrap();
    let (code, lines) = lossy.rebuild(&["--all", "--settle", "0s"]);
    let unknown = format!("{name} of campaigns that nothing names");
    assert!(code == 1 && lines[&unknown]["outcome"] == "closed", "{lines:?}");
    assert!(line("closed", 0)(&lines[&id(name, Some("early")).to_string()]) && lines.len() == 2, "{lines:?}");
    lossy.worker = lossy.scene.worker("only");
    wait_whole(&lossy.worker);
    lossy.offer_in_vain("late", name);
}

#[test]
fn a_budget_is_counted_again_without_what_a_crash_wasted() {
    count_again("rebuild-again", Beside::Nobody);
}

#[test]
#[ignore = "waits for leases to end, a minute: cargo xtask ci --extent everything"]
fn a_budget_is_counted_again_where_a_worker_runs_beside_the_rebuild() {
    count_again("rebuild-again-beside", Beside::Worker);
}

fn count_again(name: &str, beside: Beside) {
    let (mut lossy, names, _) = Lossy::new(name, &["total"], |names| total(&names[0], 1_000));
    let name = &names[0];
    lossy.decide(&format!("{name} before"), name, 400);
    // As a crash would leave it: granted and never spent.
    let (node, key) = lossy.key(name);
    lossy.cluster.cli(node, &["HINCRBY", &key, "t", "300"]).unwrap();
    lossy.decide(&format!("{name} wasted"), name, 1_000);
    let approved = lossy.scene.approved(name) as u64;
    assert!((400..1_000).contains(&approved), "{approved}");

    // A run that is killed leaves it closed, and any other run says so.
    let killed = start(&lossy.scene, &["--budget", name, "--settle", "10m"]);
    wait_until(DEADLINE, "it is closed", || !lossy.cluster.cli(node, &["HGET", &key, "x"]).unwrap().trim().is_empty());
    kill(killed, &lossy.scene, &lossy.cluster);
    let (code, lines) = lossy.rebuild(&[]);
    assert!(code == 1 && lines[name]["outcome"] == "closed", "{lines:?}");
    assert_eq!(lines[name]["command"], format!("weir rebuild --budget {name}"));
    lossy.publish(&format!("{name} after"), name, 1_000);

    let (code, lines) = lossy.count(beside, &["--budget", name]);
    let used = lines[name]["used"].as_u64().unwrap();
    // What was left of a lease may have gone to intents of after.
    let counted = (approved..1_000).contains(&used);
    assert!(code == 0 && line("recounted", used)(&lines[name]) && counted, "{approved}: {lines:?}");
    lossy.drain();
    lossy.spend(name, name, 1_000);

    let wrong = output(&mut lossy.scene.command(&["rebuild", "--budget", "autumn"])).unwrap();
    let said = said(&wrong);
    assert!(wrong.status.code() == Some(2) && said.contains(&format!("it has: {name}")), "{said}");
}

/// One budget is counted again where its shard is in use, the other one with its shard; both are lost meanwhile and begun anew. The minute until
/// leases have ended passes by the clock of the rebuild alone: of what they are spent on, nothing is judged.
#[test]
fn a_budget_that_is_begun_anew_while_it_is_counted_is_not_taken_for_counted() {
    let shard = |name: &str| id(name, None).shard(SHARDS);
    let name_beside = |closed: &str| {
        let mut names = (0..).map(|number| format!("restored{number}"));
        names.find(|name| shard(name) != shard(closed)).unwrap()
    };
    let (mut lossy, names, _) = Lossy::new("rebuild-anew", &["closed"], |names| {
        [total(&names[0], 1_000), total(&name_beside(&names[0]), 1_000)].concat()
    });
    let (closed, restored) = (&names[0], &name_beside(&names[0]));
    [closed, restored].into_iter().for_each(|name| lossy.publish(&format!("{name} before"), name, 400));
    lossy.drain();
    let (of_closed, of_restored) = (lossy.key(closed), lossy.key(restored));
    let ask = |(node, key): &(usize, String), verb: &str, more: &[&str]| {
        lossy.cluster.cli(*node, &[&[verb, key.as_str()][..], more].concat()).unwrap().trim().to_owned()
    };
    ask(&of_restored, "DEL", &[]);

    let shards = shard(restored).to_string();
    let clock = ProcessClock::ahead(0).unwrap();
    let mut command = lossy.scene.command(&["rebuild", "--budget", closed, "--shards", &shards, "--output", "json"]);
    command.args(SETTLE).envs(clock.env());
    let mut rebuild = Guarded::spawn("weir rebuild", &command, &lossy.scene.path("rebuild.log")).unwrap();
    wait_until(DEADLINE, "it is closed", || !ask(&of_closed, "HGET", &["x"]).is_empty());
    ask(&of_closed, "DEL", &[]);
    lossy.publish("after", closed, 1_000);
    wait_until(DEADLINE, "a worker takes from it", || !ask(&of_closed, "HGET", &["t"]).is_empty());
    // As a turn leaves it that had read the epoch before the shard was marked.
    ask(&of_restored, "HSET", &["s", "1", "t", "10"]);
    // It says so after ten seconds, which is longer than earlier decisions take to become visible.
    wait_until(DEADLINE, "it waits for leases to end", || rebuild.log().contains(" s for what was decided before"));
    clock.set(60).unwrap();
    assert_eq!(rebuild.wait_exit(DEADLINE).unwrap(), Exit::Code(1), "{}", rebuild.log());

    let log = rebuild.log();
    let summary = &log[log.find("{\n").unwrap_or_else(|| panic!("{log}"))..];
    let lines = lines_of(&serde_json::Deserializer::from_str(summary).into_iter::<Value>().next().unwrap().unwrap());
    assert_eq!(lines[closed]["outcome"], "unchanged", "{lines:?}");
    assert_eq!(lines[closed]["command"], format!("weir rebuild --budget {closed}"));
    assert_eq!(lines[restored]["used"], 400, "{lines:?}");
    assert_eq!(ask(&of_restored, "HGET", &["t"]), "400");
}

/// Intents are admitted and not committed, their budget is counted again, and they are read again. With another budget of theirs that is
/// spent by then.
fn counted_meanwhile(kafka: &Kafka, name: &str, is_other_spent: bool) {
    const LIMIT: usize = 1_000;
    let redis = RedisServer::start::<&str>(&[]).unwrap();
    let other = "[[budgets]]\nname = \"other\"\nchannel = \"push\"\nlimit = 500\ntotal = true\nbest_effort = true\n";
    let policy = unlimited(1, &format!("{}{other}", total("all", LIMIT)));
    let scene = Scene::on(kafka.tapped_client(), vec![redis.url()], name, 1, &policy);
    let publish = |name: &str, count: usize, channel: &str| {
        let of = json!({"campaign": "all", "channel": channel});
        let one = |number: usize| intent(&format!("{name} {number}"), 10_000 + number, of.clone()).partition(0);
        kafka.client().publish(&scene.topic("intents"), (0..count).map(one)).unwrap();
    };
    let mut worker = scene.ready("only");
    publish("before", 10, "push");
    scene.drain(&mut worker);
    kafka.tap(0).arm(Trap { api: Api::Produce, moment: Moment::Request, fate: Fate::Kill(worker.pid()) });
    publish("admitted", 300, "push");
    wait_until(DEADLINE, "the worker is killed before it has produced", || kafka.tap(0).is_sprung());
    worker.kill();

    // No worker runs, so nothing has to settle; but what was admitted is not visible, and is not counted.
    let summary = scene.summary(&["rebuild", "--budget", "all", "--settle", "0s"]);
    assert!(line("recounted", 10)(&summary["budgets"][0]), "{summary}");
    if is_other_spent {
        let keys: Vec<String> = redis.query(&["KEYS", &format!("{}:*:b5:other", scene.name)]).unwrap();
        redis.query::<()>(&["HSET", &keys[0], "t", "500"]).unwrap();
    }

    let mut worker = scene.drained("only");
    let again = scene.approved("admitted");
    assert!(again > 0, "the store had admitted some");
    let mut waves = 0;
    wait_until(DEADLINE, "all of the budget is approved", || {
        waves += 1;
        publish(&format!("wave {waves}"), 200, "email");
        scene.drain(&mut worker);
        scene.approved("") >= LIMIT
    });
    publish("last", 200, "email");
    scene.drain(&mut worker);
    assert_eq!(scene.approved(""), LIMIT, "{again} were admitted before");
}

#[test]
fn what_was_admitted_and_not_committed_when_its_budget_was_counted_again_pays_when_it_is_read_again() {
    let kafka = Kafka::start_tapped(1).unwrap();
    counted_meanwhile(&kafka, "rebuild-admitted", false);
    counted_meanwhile(&kafka, "rebuild-owed", true);
}
