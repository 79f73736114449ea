//! The users of a run: who is active from the start, who has intents, and who comes in.
#![expect(clippy::disallowed_methods, reason = "the load comes by the true time")]

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use fastrand::Rng;

use super::{Instance, user};

/// The load is made in steps of this.
const STEP: Duration = Duration::from_millis(20);
/// Of the maximum, the users who are active from the start, in percent.
const ACTIVE_PERCENT: u32 = 80;
/// The minutes over which they became so.
pub const MINUTES: u32 = 20;
/// Seconds in which as many intents of active users come as the maximum: each active user has about one a minute.
const ROUND_S: f64 = 60.0;
/// Seconds in which as many new users come in the second part as the maximum.
const RUSH_S: f64 = 20.0;
/// From one user whose news is timed to the next.
const PROBE_EVERY: Duration = Duration::from_millis(100);
/// For how long it is waited for the last of these.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Load {
    random: Rng,
    most: u32,
    /// Users who are active; the first so many numbers are users.
    active: u32,
    next: u32,
    probes: Vec<Probe>,
    stale_s: Vec<f64>,
}

/// A user who became active at one instance, and the others that do not know it yet.
struct Probe {
    user: u32,
    at: Instant,
    unknown_to: Vec<usize>,
}

impl Load {
    pub fn new(most: u32) -> Self {
        let active = most / 100 * ACTIVE_PERCENT;
        Self { random: Rng::with_seed(1), most, active, next: active, probes: Vec::new(), stale_s: Vec::new() }
    }

    /// The most users that may be active.
    pub fn most(&self) -> u32 {
        self.most
    }

    pub fn active(&self) -> u32 {
        self.active
    }

    /// The users who are active from the start, by how many minutes ago they became so.
    pub fn known(&self) -> impl Iterator<Item = (i64, Vec<u32>)> {
        let active = self.active;
        (0..MINUTES).map(move |minute| {
            let users = (0..active).filter(|user| user % MINUTES == minute);
            (i64::from(minute) + 1, users.collect())
        })
    }

    /// Intents of active users; now and then a new user, whose news is timed. Gives how long it took.
    pub fn steady(&mut self, instances: &[&dyn Instance], length: Duration) -> Duration {
        let (began, known) = (Instant::now(), self.active);
        let (mut sent, mut probed) = (0.0, Duration::ZERO);
        while began.elapsed() < length {
            let due = began.elapsed().as_secs_f64() * f64::from(self.most) / ROUND_S;
            while sent < due {
                instances[self.random.usize(..instances.len())].touch(user(self.random.u32(..known)));
                sent += 1.0;
            }
            if began.elapsed() >= probed + PROBE_EVERY {
                probed = began.elapsed();
                self.probe(instances);
            }
            self.look(instances);
            sleep(STEP);
        }
        began.elapsed()
    }

    /// New users, more than there is room for.
    pub fn rush(&mut self, instances: &[&dyn Instance], length: Duration) {
        let began = Instant::now();
        let mut sent = 0.0;
        while began.elapsed() < length {
            let due = began.elapsed().as_secs_f64() * f64::from(self.most) / RUSH_S;
            while sent < due {
                self.admit(instances);
                sent += 1.0;
            }
            self.look(instances);
            sleep(STEP);
        }
    }

    /// How long others did not know of a user who became active, in seconds, ascending.
    pub fn staleness(&mut self, instances: &[&dyn Instance]) -> Vec<f64> {
        let began = Instant::now();
        while !self.probes.is_empty() && began.elapsed() < PATIENCE {
            self.look(instances);
            sleep(STEP);
        }
        for probe in self.probes.drain(..) {
            self.stale_s.extend(probe.unknown_to.iter().map(|_| probe.at.elapsed().as_secs_f64()));
        }
        self.stale_s.sort_by(f64::total_cmp);
        std::mem::take(&mut self.stale_s)
    }

    /// A new user has an intent at any instance: gives both where it is approved.
    fn admit(&mut self, instances: &[&dyn Instance]) -> Option<(u32, usize)> {
        let (number, place) = (self.next, self.random.usize(..instances.len()));
        self.next += 1;
        let approved = instances[place].admit(user(number));
        self.active += u32::from(approved);
        approved.then_some((number, place))
    }

    fn probe(&mut self, instances: &[&dyn Instance]) {
        let Some((number, place)) = self.admit(instances) else { return };
        // A filter takes some for active who are not.
        let others = (0..instances.len()).filter(|other| *other != place);
        let unknown_to: Vec<usize> = others.filter(|other| !instances[*other].is_active(user(number))).collect();
        if !unknown_to.is_empty() {
            self.probes.push(Probe { user: number, at: Instant::now(), unknown_to });
        }
    }

    /// Looks who knows of the users whose news is timed.
    fn look(&mut self, instances: &[&dyn Instance]) {
        let stale_s = &mut self.stale_s;
        self.probes.retain_mut(|probe| {
            probe.unknown_to.retain(|other| {
                let knows = instances[*other].is_active(user(probe.user));
                if knows {
                    stale_s.push(probe.at.elapsed().as_secs_f64());
                }
                !knows
            });
            !probe.unknown_to.is_empty()
        });
    }
}
