//! The pressure of a run's policy; the log of activity as a process takes turns at it: the Redis edge as it is, what the checker remembers
//! of it, and around it the planted bugs that need a place there; and the checks: no more users become active than may be, and nobody is
//! kept out for no reason.

use weir_core::limit::pressure::{
    activity::{ActivityHash, Minute},
    activity_log::{SharedPlaces, SyncReply, SyncRequest},
};

use super::prelude::*;

/// For how long the planted bug lets the log keep a member, in milliseconds: one that takes all of its turns does not notice.
const SOON_GONE_MS: i64 = 1_500;

/// Who told first that a user was active in a minute, and when the log had answered.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    pub process: u64,
    pub at: Duration,
}

/// What processes told the log, as far as it has not lost it.
#[derive(Debug, Default)]
pub struct Heard {
    pub told: BTreeMap<(ActivityHash, Minute), Told>,
    /// Who ever was in the log. A process that ended has not heard that it told them, and whoever reads of them does not tell them again.
    logged: BTreeSet<(ActivityHash, Minute)>,
    /// Users of approvals that were replayed: they took no place. From when until when it was asked for.
    pub replayed: Vec<(ActivityHash, Duration, Duration)>,
    /// Users and minutes that failovers and wipes have lost, and places of instances that were forgotten.
    pub lost: usize,
    pub places_lost: u64,
}

pub type SharedHeard = Arc<Mutex<Heard>>;

fn users(item: Option<&Item>) -> BTreeSet<(ActivityHash, Minute)> {
    let Some(Item::Stream(Stream { entries, .. })) = item else { return BTreeSet::new() };
    let of = |fields: &Vec<Vec<u8>>| -> Vec<(ActivityHash, Minute)> {
        let minute = Minute(str::from_utf8(&fields[3]).unwrap().parse().unwrap());
        let hashes = fields[7].as_chunks::<8>().0;
        hashes.iter().map(|hash| (ActivityHash(u64::from_be_bytes(*hash)), minute)).collect()
    };
    entries.values().flat_map(of).collect()
}

/// The places that members hold, or held that have ended (`lua/share/members.lua`, `lua/sync.lua`), by their names: one that ends has
/// another field then. None for another key.
fn places(item: Option<&Item>) -> BTreeMap<&[u8], u64> {
    let Some(Item::Hash(hash)) = item else { return BTreeMap::new() };
    let members = hash.iter().filter(|(field, _)| field.get(1..).is_some_and(|of| of.starts_with(b":weir-")));
    let held = |entry: &Vec<u8>| str::from_utf8(entry).unwrap().split(':').nth(3).unwrap().parse().unwrap();
    members.map(|(field, entry)| (&field[2..], held(entry))).collect()
}

impl Heard {
    /// A node has run a script.
    pub fn ran(&mut self, script: &Script, keys: &[Vec<u8>], data: &Data) {
        if script.is("sync") {
            self.logged.extend(users(data.get(&keys[0])));
        }
    }

    /// A replica with `kept` takes over from a primary with `had`, or nothing is kept.
    pub fn fails_over(&mut self, had: Option<&Item>, kept: Option<&Item>) {
        let kept_users = users(kept);
        for gone in users(had).difference(&kept_users) {
            self.told.remove(gone);
            self.lost += 1;
        }
        let kept_places = places(kept);
        for (instance, held) in places(had) {
            self.places_lost += held.saturating_sub(kept_places.get(instance).copied().unwrap_or(0));
        }
    }
}

/// The log as a process takes turns at it.
pub struct SimActivityLog {
    pub env: Env,
    pub process: u64,
    pub log: RedisActivityLog,
    pub heard: SharedHeard,
}

impl Share<SharedPlaces> for SimActivityLog {
    async fn turn(&mut self, _: &(), number: TurnNumber, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let mut asked = request.clone();
        if self.env.sabotage() == Sabotage::PlaceOutlived {
            asked.member_for_ms = asked.member_for_ms.min(SOON_GONE_MS);
        }
        let outcome = self.log.turn(&(), number, &asked).await;
        match &outcome {
            Ok(_) => {
                let (process, at) = (self.process, self.env.passed());
                let mut heard = lock(&self.heard);
                for active in &request.active {
                    for user in &active.users {
                        heard.told.entry((*user, active.minute)).or_insert(Told { process, at });
                    }
                }
            }
            Err(_) if self.env.sabotage() == Sabotage::SkipTurnRetry => {
                let (cursor, held, part) = (request.cursor.clone(), request.held, request.held);
                return Ok(SyncReply { cursor, held, part, members: 1, ..SyncReply::default() });
            }
            Err(error) => self.env.note(|| format!("process {}: no turn at the log: {error}", self.process)),
        }
        outcome
    }
}

/// Within so long of a turn, all processes have read what was told, unless something failed.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// Within so long of an approval its process tells the log of it, whatever fails.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// A process that stood still for so long is no member any more. It gives its places up, but for those of the batches that it was deciding.
const MEMBER_FOR: Duration = Duration::from_secs(8);
/// A clock that is off by no more has to agree with others on the window.
const MOST_OFF_MS: i64 = 100;

/// `[pressure]` whose maximum is reached, in every second run.
pub fn draw(env: &Env, may_defer: bool) -> Option<PressureRule> {
    let planted = env.sabotage();
    // Nothing is drawn for another planted bug: the seed that shows it stays the same.
    if !planted.is_about(About::Pressure) && (planted != Sabotage::None || !env.chance(500)) {
        return None;
    }
    // The planted bug shows where the window outlasts the trouble.
    let long = planted == Sabotage::SkipTurnRetry;
    let rule = PressureRule {
        max_active_users: [2, 4, 9, 16][env.index(4)],
        window_minutes: if long { 10 } else { [1, 1, 2, 10][env.index(4)] },
        filter: if env.chance(200) { on_channel("push") } else { Filter::default() },
        action: if may_defer && !long && env.chance(500) { Action::Defer } else { Action::Suppress },
    };
    Some(match rule.action {
        // Few users per window, each with intents that are deferred again and again, would take hours to come in.
        Action::Defer => PressureRule { max_active_users: rule.max_active_users.max(9), window_minutes: 1, ..rule },
        Action::Suppress => rule,
    })
}

fn applies_to(rule: &PressureRule, ask: &Ask) -> bool {
    rule.filter.channels.is_none() || ask.kind == Kind::Push
}

fn minute(at: Duration) -> i64 {
    Minute::from(wall(at)).0
}

/// Whether a clock that is off shows another minute than one that is right, at some moment from one to another.
fn shows_another_minute(off_ms: i64, first: Duration, last: Duration) -> bool {
    let shown = |at: Duration| Minute::from(wall(at).plus(off_ms)).0;
    if off_ms > 0 { shown(last) > minute(first) } else { shown(first) < minute(last) }
}

fn hash(ask: &Ask) -> ActivityHash {
    UserHash::of(&ask.user).into()
}

impl Judge<'_> {
    pub fn pressure(&mut self, outs: &[&Out]) {
        let world = self.world;
        let Some(load) = world.setting.load.as_ref().filter(|_| world.setting.mode != Mode::Shadow) else { return };
        let heard = lock(&world.keyspace.heard);
        self.most_active(load, &heard);
        self.all_told(load, outs, &heard);
    }

    /// When the first intent came for each user that pressure does not apply to. It makes its user active without a place; a push behind it needs
    /// none either.
    fn others_came(&self, load: &PressureRule) -> BTreeMap<ActivityHash, Duration> {
        let mut first = BTreeMap::new();
        for intent in self.world.broker.borrow().all(Log::Input) {
            if let Some(ask) = self.asks.get(&intent.first).filter(|ask| !applies_to(load, ask)) {
                let came: &mut Duration = first.entry(hash(ask)).or_insert(intent.at);
                *came = intent.at.min(*came);
            }
        }
        first
    }

    /// No more users are active at once than may be, of those who took a place for it.
    fn most_active(&mut self, load: &PressureRule, heard: &Heard) {
        let (window, others_came) = (i64::from(load.window_minutes), self.others_came(load));
        let mut active: BTreeMap<i64, Vec<ActivityHash>> = BTreeMap::new();
        let mut before: Option<(ActivityHash, i64, bool)> = None;
        for ((user, at), told) in &heard.told {
            let again = before.filter(|(of, last, _)| of == user && at.0 - last < window);
            let counts = match again {
                // Who leaves the window meanwhile, and is told late to stay, comes on top.
                Some((.., counts)) => counts && minute(told.at) == at.0,
                None => {
                    let may_need_none = others_came.get(user).is_some_and(|came| *came <= told.at);
                    !may_need_none && !self.took_no_place(*user, told, heard)
                }
            };
            before = Some((*user, at.0, counts));
            for minute in (at.0..at.0 + window).filter(|_| counts) {
                let users = active.entry(minute).or_default();
                if users.last() != Some(user) {
                    users.push(*user);
                }
            }
        }
        let most = load.max_active_users + heard.places_lost;
        for (minute, users) in active.iter().filter(|(_, users)| users.len() as u64 > most) {
            let told: Vec<_> = heard.told.iter().filter(|((user, _), _)| users.contains(user)).collect();
            self.broken.push(format!("pressure: {} of {most} users were active in {minute}: {told:?}", users.len()));
        }
    }

    /// Whether a process may have been wrong, from one moment to another, about who is active, and others about whom it let in: its clock
    /// showed another minute than the others', which makes another window, or a second process had its name, of which one does not read the
    /// other's users. What it took for right then has left its window some time later.
    fn is_unsure(&self, process: u64, (from, upto): (Duration, Duration)) -> bool {
        let processes = self.world.processes.borrow();
        let Some(process) = processes.iter().find(|other| other.number == process) else { return false };
        let window_ms = self.world.setting.load.as_ref().map_or(0, PressureRule::window_ms).unsigned_abs();
        let since = from.saturating_sub(Duration::from_millis(window_ms) + TOLD_WITHIN);
        let has_twin = processes.iter().any(|other| {
            let is_namesake = other.number != process.number && other.instance == process.instance;
            let ends_at = process.died_at.get().unwrap_or(upto).min(upto);
            is_namesake && other.lives_within(process.began_at.max(since), ends_at)
        });
        let changes = self.world.clock_changes.borrow();
        let changes: Vec<_> = changes.iter().filter(|(of, ..)| *of == process.instance).collect();
        let was_wrong = changes.iter().enumerate().any(|(place, (_, began_at, off_ms))| {
            let until = changes.get(place + 1).map_or(Duration::MAX, |(_, next, _)| *next);
            // Users of a minute ahead stay until it has come; by a clock that is off by more, nothing is decided.
            let ahead = Duration::from_millis(off_ms.unsigned_abs().min(MAX_SKEW_MS.unsigned_abs()));
            let (first, last) = ((*began_at).max(process.began_at).max(since.saturating_sub(ahead)), until.min(upto));
            off_ms.abs() > MOST_OFF_MS && first <= last && shows_another_minute(*off_ms, first, last)
        });
        has_twin || was_wrong
    }

    /// Whether a user may have become active without a place that counts: by a replay, or in a process that stood still, or may be
    /// wrong.
    fn took_no_place(&self, user: ActivityHash, told: &Told, heard: &Heard) -> bool {
        let since = told.at.saturating_sub(TOLD_WITHIN);
        let replayed = heard.replayed.iter().any(|(of, _, at)| *of == user && *at >= since && *at <= told.at);
        let stood_still = self
            .world
            .freezes_of(told.process)
            .into_iter()
            .any(|(began, ended)| ended - began > MEMBER_FOR && began <= told.at && told.at <= ended + READ_WITHIN);
        replayed || stood_still || self.is_unsure(told.process, (told.at, told.at))
    }

    /// By when others are told of a user who was approved then: within so long of the last trouble.
    fn told_by(&self, at: Duration) -> Duration {
        let mut troubles = self.world.troubles.borrow().clone();
        troubles.sort_unstable();
        let mut by = at + READ_WITHIN;
        for (began, ended) in troubles {
            by = if began <= by { by.max(ended + READ_WITHIN) } else { by };
        }
        by
    }

    /// Other instances are told of whoever was approved, unless the process ended, or the user has left the window by then.
    fn all_told(&mut self, load: &PressureRule, outs: &[&Out], heard: &Heard) {
        let processes = self.world.processes.borrow();
        let ends: Vec<u64> = processes.iter().filter(|process| !process.is_dead()).map(|one| one.number).collect();
        for out in outs.iter().filter(|out| out.is_approval() && ends.contains(&out.submit.process)) {
            let Some(ask) = self.asks.get(&out.intent.first) else { continue };
            let (Some(at), user) = (told(out).decided_at, hash(ask)) else { continue };
            let at = at.div_euclid(60_000);
            // A replay keeps the time of its first decision.
            let now = minute(out.submit.at);
            let known = [at - 1, at, at + 1, now].iter().any(|shown| heard.logged.contains(&(user, Minute(*shown))));
            let told_by = self.told_by(out.submit.at);
            if self.is_unsure(out.submit.process, (out.submit.at, told_by)) {
                continue;
            }
            let is_due = told_by < self.world.env.passed() && minute(told_by) - at < i64::from(load.window_minutes);
            if !known && heard.lost == 0 && is_due {
                self.broken.push(format!("pressure: {ask:?} was approved at {:?}, and nobody is told", out.submit));
            }
        }
    }

    /// Whether a user may have been kept out: not active, as far as the process must have known.
    pub fn may_be_kept_out(&self, out: &Out, ask: &Ask) -> bool {
        let load = self.world.setting.load.as_ref().filter(|load| applies_to(load, ask));
        let Some(load) = load else { return false };
        let Some(Decided { from, upto, .. }) = self.world.decided(out, ask, |_| false) else { return true };
        if self.is_unsure(out.submit.process, (from, upto)) {
            return true;
        }
        let heard = lock(&self.world.keyspace.heard);
        let since = from.saturating_sub(READ_WITHIN);
        let calm = {
            let troubles = self.world.troubles.borrow();
            // Nothing was read while time jumped.
            let jumped = self.world.jumps.borrow().iter().any(|at| (since..=upto).contains(at));
            !jumped && !troubles.iter().any(|(began, ended)| *began <= upto && *ended + READ_WITHIN >= since)
        };
        let first = Minute(minute(upto) - i64::from(load.window_minutes) + 1);
        !heard
            .told
            .range((hash(ask), first)..=(hash(ask), Minute(i64::MAX)))
            .filter(|(_, told)| !self.is_unsure(told.process, (told.at, told.at)))
            .any(|(_, told)| told.at < from && (told.process == out.submit.process || calm && told.at < since))
    }
}
