//! The route of a run's policy, how the policy changes it, and the consumers that deliver what is approved on it.

use weir_core::limit::route::{DEFAULT_NETWORK_MS, FairBy, Reserved};

use super::{
    downstream::{PARTITIONS, partition_of},
    prelude::*,
    rules,
};

pub const ROUTE: &str = "route";
pub const WAITING: i32 = 3;
/// The approved topic of pushes, where these are the route.
const OF_PUSHES: ApprovedTopic = ApprovedTopic(1);
/// More than there are campaigns.
const CAMPAIGNS: u64 = 400;

/// What the policy says of the route. Intents that wait are decided all the same, whatever it says by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// What it said first.
    First,
    /// Nothing: it is removed.
    Removed,
    /// It suppresses intents when it is full, and none waits any more.
    Suppresses,
    /// More, or less, is approved ahead.
    Changed,
}

/// `[[routes]]` of a policy, and its consumers.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// It is of pushes, which have an approved topic of their own; else of all intents.
    pushes_only: bool,
    pub when_full: WhenFull,
    ahead_ms: i64,
    pub rate: Option<u64>,
    /// The share that is kept for some of its intents, in thousandths.
    reserved: Option<u32>,
    /// The planted bug: it is for all intents, whatever the checker thinks.
    reserves_all: bool,
    /// What the consumers take for a record.
    takes: Duration,
    commits_every: Duration,
    /// They pass offsets without a record, as consumers do that commit their position.
    passes: bool,
    /// From when until when they deliver nothing.
    stands: (Duration, Duration),
    /// Records that are in each partition of its topic already.
    pub before: u64,
    /// When they begin to read each partition, from its end on; 0: they have committed its end before the run.
    pub begins: [Duration; PARTITIONS],
    /// How the policy changes it, and when.
    pub edits: [Option<(Duration, Rule)>; 2],
}

impl Paced {
    /// One in every third run.
    pub fn draw(env: &Env) -> Option<Self> {
        let mut dice = env.dice("routes", 0);
        let (planted, is_third) = (env.sabotage(), dice.u32(..3) == 0);
        if !env.has(About::Routes, is_third) && !planted.is_about(About::Edits) {
            return None;
        }
        let when_full = match dice.u32(..10) {
            _ if planted.is_about(About::Edits) => WhenFull::Wait,
            0 => WhenFull::Suppress,
            _ => WhenFull::Wait,
        };
        let stands = Duration::from_millis(dice.u64(..40_000));
        let long = Duration::from_millis([0, 6_000, 25_000][dice.usize(..3)]);
        let paced = Self {
            pushes_only: dice.bool(),
            when_full,
            ahead_ms: [5_000, 10_000, 30_000][dice.usize(..3)],
            rate: [None, None, Some(5), Some(20)][dice.usize(..4)],
            reserved: [None, None, Some(200), Some(500)][dice.usize(..4)],
            reserves_all: false,
            takes: Duration::from_millis([20, 100, 400][dice.usize(..3)]),
            commits_every: Duration::from_millis([100, 1_000, 5_000][dice.usize(..3)]),
            passes: dice.bool(),
            stands: (stands, stands + long),
            before: [0, 0, 1_000_000][dice.usize(..3)],
            begins: draw_begins(&mut dice, planted),
            edits: [None; 2],
        };
        let mut paced = Self { edits: paced.draw_edits(&mut dice, planted), ..paced };
        if planted == Sabotage::OffsetsCountedAnew {
            // A ceiling hides how much would be approved.
            (paced.rate, paced.before) = (None, 1_000_000);
        }
        if planted == Sabotage::ReservedForAll {
            (paced.reserved, paced.reserves_all) = (Some(500), true);
        }
        Some(paced)
    }

    /// One or two edits, in every second run in which intents wait. Of planted bugs, those have some that need them.
    fn draw_edits(&self, dice: &mut fastrand::Rng, planted: Sabotage) -> [Option<(Duration, Rule)>; 2] {
        let (at, is_second) = (Duration::from_millis(dice.u64(3_000..40_000)), dice.bool());
        let after = at + Duration::from_millis([300, 2_000, 10_000][dice.usize(..3)]);
        let needed = [Sabotage::RemovedRouteUnread, Sabotage::OffsetsCountedAnew, Sabotage::PutBackUnkept];
        let needed = needed.iter().position(|bug| *bug == planted);
        if needed.is_none() && (planted != Sabotage::None || !is_second || self.when_full != WhenFull::Wait) {
            return [None; 2];
        }
        let (first, second) = [
            (Rule::Removed, None),
            (Rule::Changed, None),
            (Rule::Removed, Some(Rule::First)),
            (Rule::Suppresses, None),
            (Rule::Suppresses, Some(Rule::First)),
            (Rule::Changed, Some(Rule::Removed)),
        ][needed.unwrap_or_else(|| dice.usize(..6))];
        [Some((at, first)), second.map(|second| (after, second))]
    }

    pub fn is_for(&self, ask: &Ask) -> bool {
        !self.pushes_only || ask.kind == Kind::Push
    }

    pub fn reserves(&self, ask: &Ask) -> bool {
        let number = ask.campaign.as_deref().and_then(|name| name.strip_prefix("c-")?.parse::<u64>().ok());
        let is_of_share = if self.pushes_only { number.is_some_and(|n| n % 2 == 0) } else { ask.kind == Kind::Email };
        self.reserved.is_some() && is_of_share
    }

    fn to_reserved(self) -> Option<Reserved> {
        let share_permille = self.reserved?;
        let campaigns = || (0..CAMPAIGNS).step_by(2).map(|number| format!("c-{number}")).collect::<BTreeSet<String>>();
        let filter = match self.pushes_only {
            _ if self.reserves_all => Selection::default(),
            true => Selection { filter: Filter::default(), campaigns: Some(campaigns()) },
            false => Selection { filter: on_channel("email"), campaigns: None },
        };
        Some(Reserved { filter, share_permille })
    }

    pub fn topic(&self) -> ApprovedTopic {
        if self.pushes_only { OF_PUSHES } else { ApprovedTopic::MAIN }
    }

    pub fn by_channel(&self) -> Arc<[(String, ApprovedTopic)]> {
        if self.pushes_only { Arc::new([("push".to_owned(), OF_PUSHES)]) } else { Arc::default() }
    }

    /// What becomes of an intent that it cannot take, by a rule; `None`: it is removed.
    pub fn when_full_by(&self, rule: Rule) -> Option<WhenFull> {
        match rule {
            Rule::First | Rule::Changed => Some(self.when_full),
            Rule::Suppresses => Some(WhenFull::Suppress),
            Rule::Removed => None,
        }
    }

    fn ahead_ms_by(&self, rule: Rule) -> i64 {
        match (rule, self.ahead_ms) {
            (Rule::Changed, 5_000) => 10_000,
            (Rule::Changed, _) => 5_000,
            (Rule::First | Rule::Suppresses | Rule::Removed, ahead_ms) => ahead_ms,
        }
    }

    /// The most that is approved ahead by any of its rules, in seconds.
    pub fn most_ahead_s(&self) -> f64 {
        let ahead_ms = [Rule::First, Rule::Changed].map(|rule| self.ahead_ms_by(rule));
        ahead_ms.into_iter().max().unwrap_or(0) as f64 / 1_000.0
    }

    /// The route by a rule; `None`: it is removed.
    pub fn to_weir(self, rule: Rule) -> Option<Route> {
        let filter = if self.pushes_only { on_channel("push") } else { Filter::default() };
        Some(Route {
            name: ROUTE.into(),
            filter: Selection { filter, campaigns: None },
            consumer_group: Some("delivery".into()),
            ahead_ms: self.ahead_ms_by(rule),
            rate: self.rate,
            service: None,
            network_ms: DEFAULT_NETWORK_MS,
            reserved: self.to_reserved(),
            when_full: self.when_full_by(rule)?,
            fair_by: FairBy::Campaign,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
        })
    }
}

/// When consumers begin to read each partition: in every second run some of them begin later.
fn draw_begins(dice: &mut fastrand::Rng, planted: Sabotage) -> [Duration; PARTITIONS] {
    let begin_late = dice.bool() || planted == Sabotage::OffsetsCountedAnew;
    std::array::from_fn(|place| {
        let at = Duration::from_millis(dice.u64(500..8_000));
        // One of them as a rule is there.
        if begin_late && (place > 0 || dice.u32(..4) == 0) { at } else { Duration::ZERO }
    })
}

/// The policy as those see it who keep routes: with a planted bug, one that they do not follow to its end.
pub fn keepers_policy(env: &Env, policy: &Arc<Current<Policy>>) -> Arc<Current<Policy>> {
    if env.sabotage() == Sabotage::PutBackUnkept { Current::new(policy.get()) } else { Arc::clone(policy) }
}

impl World {
    pub fn change_policy(&self) {
        let stop = self.setting.stop.filter(|_| self.stopped_at.get().is_some());
        let rule = self.rule_at(self.env.passed());
        let policy = Arc::new(rules::policy(&self.setting, stop, rule));
        // The planted bug: who keeps routes does not see it.
        if !(self.is_put_back(self.env.passed()) && self.env.sabotage() == Sabotage::PutBackUnkept) {
            self.keepers_policy.replace(Arc::clone(&policy));
        }
        self.decider.policy.replace(policy);
    }

    /// What the policy says of the route at a moment.
    pub fn rule_at(&self, at: Duration) -> Rule {
        self.route_rules.borrow().iter().rfind(|(since, _)| *since <= at).map_or(Rule::First, |(_, rule)| *rule)
    }

    /// Whether it says by then what it said first, and said something else before.
    pub fn is_put_back(&self, at: Duration) -> bool {
        let was_edited = self.route_rules.borrow().first().is_some_and(|(since, _)| *since <= at);
        was_edited && self.rule_at(at) == Rule::First
    }

    /// All that it says of it from one moment to another.
    pub fn rules_within(&self, from: Duration, upto: Duration) -> Vec<Rule> {
        let rules = self.route_rules.borrow();
        let later = rules.iter().filter(|(since, _)| *since > from && *since <= upto).map(|(_, rule)| *rule);
        std::iter::once(self.rule_at(from)).chain(later).collect()
    }
}

pub async fn edit(world: Rc<World>) {
    let edits = world.setting.paced.map(|paced| paced.edits).into_iter().flatten();
    for (at, rule) in edits.flatten() {
        let env = &world.env;
        env.sleep(at.saturating_sub(env.passed())).await;
        world.route_rules.borrow_mut().push((env.passed(), rule));
        world.change_policy();
        lock(&world.broker.borrow().downstream).is_removed = rule == Rule::Removed;
        env.note(|| format!("the route of the policy is changed: {rule:?}"));
    }
}

/// How far the consumers are.
#[derive(Default)]
struct Reader {
    /// How many of all outputs they have seen.
    seen: usize,
    /// What they have seen of each partition and not passed: places among all outputs, and whether a record is there.
    left: [VecDeque<(usize, bool)>; PARTITIONS],
    /// Offsets that they have passed in it; `None`: they do not read it yet.
    passed: [Option<u64>; PARTITIONS],
    /// Records that were delivered, or passed over.
    delivered: u64,
}

impl Reader {
    /// Sees what can be read now, and begins to read the partitions whose time has come: from the end on.
    fn look(&mut self, broker: &mut Broker, paced: &Paced, now: Duration) {
        let (_, end) = broker.stable(self.seen);
        for out in broker.outputs[self.seen..end].iter().filter(|out| out.to == Destination::Approved(paced.topic())) {
            self.left[partition_of(&out.intent.key)].push_back((out.offset, broker.visible_at(out).is_some()));
        }
        self.seen = end;
        for (place, at) in paced.begins.into_iter().enumerate() {
            if self.passed[place].is_some() || now < at {
                continue;
            }
            self.passed[place] = Some(0);
            if !at.is_zero() {
                self.delivered += self.left[place].iter().filter(|(_, is_record)| *is_record).count() as u64;
                self.pass(place, usize::MAX);
            }
        }
    }

    /// Delivers one record; or passes what has none.
    fn read(&mut self, paced: &Paced) {
        let first = |left: &VecDeque<(usize, bool)>| left.iter().find(|(_, is_record)| *is_record).map(|(at, _)| *at);
        let read: Vec<usize> = (0..PARTITIONS).filter(|place| self.passed[*place].is_some()).collect();
        match read.iter().filter_map(|place| Some((first(&self.left[*place])?, *place))).min() {
            Some((at, place)) => {
                self.pass(place, at);
                self.delivered += 1;
            }
            None if paced.passes => read.into_iter().for_each(|place| self.pass(place, usize::MAX)),
            None => {}
        }
    }

    /// Passes all of a partition up to this place among all outputs.
    fn pass(&mut self, place: usize, upto: usize) {
        while self.left[place].pop_front_if(|(at, _)| *at <= upto).is_some() {
            self.passed[place] = self.passed[place].map(|passed| passed + 1);
        }
    }
}

/// Delivers what is approved on the route, and notes how much that is.
pub async fn deliver(world: Rc<World>) {
    let Some(paced) = world.setting.paced else { return };
    let env = world.env.clone();
    let (mut reader, mut commits_at) = (Reader::default(), Duration::ZERO);
    loop {
        env.sleep(paced.takes).await;
        let now = env.passed();
        if (paced.stands.0..paced.stands.1).contains(&now) && !env.is_calm() {
            continue;
        }
        let mut broker = world.broker.borrow_mut();
        reader.look(&mut broker, &paced, now);
        reader.read(&paced);
        if now >= commits_at {
            commits_at = now + paced.commits_every;
            let Reader { passed, delivered, .. } = &reader;
            if lock(&broker.downstream).commit(passed) {
                env.note(|| format!("delivery has committed {delivered} records, {passed:?} offsets"));
                lock(&world.book).delivered.push((now, *delivered));
            }
        }
    }
}
