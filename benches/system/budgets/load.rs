//! The load: instances that come and go, and the intents that each of them reads.

use std::{cmp::Reverse, collections::BinaryHeap};

use clap::ValueEnum;
use weir_core::{basis::time::Time, limit::budget::SpanNow};

use crate::keyspace::START_MS;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// Intents that an instance reads per millisecond where all of a window's are there at its start.
const BLAST_PER_MS: f64 = 20.0;
/// Intents offered in a window, of the limit.
pub(super) const OFFERED: f64 = 1.3;
pub(super) const SEED: u64 = 1;
/// Of so many instances one leaves in each window.
const LEAVING: usize = 4;
/// The part of the time with load that an instance is away until the next one takes its place.
const AWAY: i64 = 20;

/// The window of a budget, and how its load comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Window {
    /// Any minute; evenly
    Minute,
    /// Any hour; evenly
    Hour,
    /// Any hour; a third of the limit at once, four times an hour
    HourInBursts,
    /// Any 24 hours; evenly
    Day,
    /// A calendar day; evenly
    CalendarDay,
    /// A calendar day; all of its intents at once
    CalendarDayAtOnce,
    /// In total; all intents at once
    TotalAtOnce,
}

/// What differs from window to window.
pub(super) struct Kind {
    pub(super) says: &'static str,
    pub(super) is_rolling: bool,
    /// Whether its intents come evenly; else as fast as they are read.
    pub(super) is_even: bool,
    /// Its length; of a total, of the time that is looked at.
    pub(super) length_ms: i64,
    /// How many of it are run through.
    pub(super) windows: i64,
    /// The time between two batches of an instance, in the mean, at least.
    pause_ms: f64,
}

impl Window {
    pub(super) fn kind(self) -> Kind {
        let (says, is_rolling, is_even, length_ms, windows, pause_ms) = match self {
            Self::Minute => ("`window = \"1m\"`, even load", true, true, MINUTE_MS, 3, 50.0),
            Self::Hour => ("`window = \"1h\"`, even load", true, true, HOUR_MS, 3, 250.0),
            Self::HourInBursts => ("`window = \"1h\"`, in bursts", true, false, HOUR_MS, 12, 50.0),
            Self::Day => ("`window = \"24h\"`, even load", true, true, DAY_MS, 2, 1_000.0),
            Self::CalendarDay => ("`per = \"day\"`, even load", false, true, DAY_MS, 2, 1_000.0),
            Self::CalendarDayAtOnce => ("`per = \"day\"`, all at once", false, false, DAY_MS, 2, 50.0),
            Self::TotalAtOnce => ("`total = true`, all at once", false, false, DAY_MS, 1, 50.0),
        };
        Kind { says, is_rolling, is_even, length_ms, windows, pause_ms }
    }

    /// In how many waves the intents of a window come.
    fn waves(self) -> i64 {
        if self == Self::HourInBursts { 4 } else { 1 }
    }

    /// Instances of so many that leave in a window. A quarter; in a minute one.
    fn leaving(self, instances: usize) -> usize {
        if self == Self::Minute { 1 } else { instances.div_ceil(LEAVING) }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Scene {
    /// The budget's window, and how the load comes.
    pub window: Window,
    /// The budget's limit; each intent costs 1.
    pub limit: u64,
    /// Instances, while none is away.
    pub instances: usize,
    /// Whether a refill takes what is left where that is less than a unit.
    pub best_effort: bool,
}

impl Scene {
    pub(super) fn end_ms(&self) -> i64 {
        self.window.kind().length_ms * self.window.kind().windows
    }

    /// The number of the calendar period at a moment.
    pub(super) fn period(&self, at: i64) -> usize {
        usize::try_from(at / self.window.kind().length_ms).unwrap_or(0)
    }

    pub(super) fn span(&self, at: i64) -> SpanNow {
        let length_ms = self.window.kind().length_ms;
        match self.window {
            Window::Minute | Window::Hour | Window::HourInBursts | Window::Day => {
                SpanNow::Rolling { window_ms: length_ms }
            }
            Window::CalendarDay | Window::CalendarDayAtOnce => {
                let start = at - at.rem_euclid(length_ms);
                SpanNow::Period { start: time(start), end: time(start + length_ms) }
            }
            Window::TotalAtOnce => SpanNow::Total,
        }
    }

    fn wave_ms(&self) -> i64 {
        self.window.kind().length_ms / self.window.waves()
    }

    fn offered(&self) -> f64 {
        self.limit as f64 * OFFERED / self.window.waves() as f64
    }

    /// Intents per millisecond over all instances, while there are any.
    fn rate(&self) -> f64 {
        let even = self.offered() / self.wave_ms() as f64;
        if self.window.kind().is_even { even } else { even.max(BLAST_PER_MS * self.instances as f64) }
    }
}

/// The time of day at so many milliseconds of a case.
pub(super) fn time(at: i64) -> Time {
    Time::default().plus(START_MS + at)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Batch(u64),
    Stops,
    IsKilled,
    Joins,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Leave {
        kill: bool,
    },
    Join,
    /// Of this instance of a place.
    Read(u32),
}

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    instance: u32,
    is_away: bool,
    read_at: i64,
    /// The part of an intent that has not been read.
    rest: f64,
}

/// All that happens in a case, in order: when, to which place, and what. The same for each method.
pub(super) struct Load {
    scene: Scene,
    random: fastrand::Rng,
    places: Vec<Place>,
    steps: BinaryHeap<Reverse<(i64, usize, Step)>>,
    waves: Vec<i64>,
    wave: usize,
    read: u64,
}

impl Load {
    pub(super) fn new(scene: &Scene) -> Self {
        let mut random = fastrand::Rng::with_seed(SEED);
        let (length_ms, wave_ms) = (scene.window.kind().length_ms, scene.wave_ms());
        let busy_ms = ((scene.offered() / scene.rate()) as i64).clamp(1, wave_ms);
        // A burst is over when the next one begins.
        let late_ms = if scene.window.waves() > 1 { wave_ms - busy_ms } else { 0 };
        let waves = 0..scene.window.kind().windows * scene.window.waves();
        let waves: Vec<i64> = waves.map(|wave| wave * wave_ms + random.i64(0..=late_ms)).collect();
        let mut steps = BinaryHeap::new();
        let mut kill = true;
        for window in 0..scene.window.kind().windows {
            for _ in 0..scene.window.leaving(scene.instances) {
                let (at, place) = (window * length_ms + random.i64(0..busy_ms), random.usize(..scene.instances));
                steps.push(Reverse((at, place, Step::Leave { kill })));
                let away_ms = if scene.instances == 1 { 0 } else { busy_ms / AWAY };
                steps.push(Reverse((at + away_ms, place, Step::Join)));
                kill = !kill;
            }
        }
        let first = waves[0];
        (0..scene.instances).for_each(|place| steps.push(Reverse((first, place, Step::Read(0)))));
        let places = vec![Place { read_at: first, ..Place::default() }; scene.instances];
        Self { scene: *scene, random, places, steps, waves, wave: 0, read: 0 }
    }

    /// When an instance that has read at a moment reads again.
    fn next_read(&mut self, at: i64) -> i64 {
        let one_ms = self.present() / self.scene.rate();
        let pause_ms = self.scene.window.kind().pause_ms.max(one_ms) * (0.5 + self.random.f64());
        at + (pause_ms as i64).max(1)
    }

    /// Instances that are not away.
    fn present(&self) -> f64 {
        self.places.iter().filter(|place| !place.is_away).count().max(1) as f64
    }

    fn reads(&mut self, at: i64, number: usize, instance: u32) -> Option<Arrival> {
        if self.places[number].instance != instance || self.places[number].is_away {
            return None;
        }
        while self.waves.get(self.wave + 1).is_some_and(|begins| *begins <= at) {
            (self.wave, self.read) = (self.wave + 1, 0);
        }
        let due = self.scene.rate() / self.present();
        let place = &mut self.places[number];
        let waiting = due * (at - place.read_at).max(0) as f64 + place.rest;
        let left = (self.scene.offered() as u64).saturating_sub(self.read);
        let intents = (waiting as u64).min(left);
        (place.rest, place.read_at) = (waiting.fract(), at);
        self.read += intents;
        let next = if intents == left {
            // All of this wave have been read.
            let begins = self.waves.get(self.wave + 1).copied().unwrap_or(i64::MAX / 2);
            self.places[number].read_at = begins;
            self.next_read(begins)
        } else {
            self.next_read(at)
        };
        self.steps.push(Reverse((next, number, Step::Read(instance))));
        (intents > 0).then_some(Arrival::Batch(intents))
    }

    fn step(&mut self, at: i64, number: usize, step: Step) -> Option<Arrival> {
        let is_away = self.places[number].is_away;
        match step {
            Step::Read(instance) => self.reads(at, number, instance),
            Step::Leave { kill } if !is_away => {
                self.places[number].is_away = true;
                Some(if kill { Arrival::IsKilled } else { Arrival::Stops })
            }
            Step::Join if is_away => {
                let instance = self.places[number].instance + 1;
                self.places[number] = Place { instance, is_away: false, read_at: at, rest: 0.0 };
                let next = self.next_read(at);
                self.steps.push(Reverse((next, number, Step::Read(instance))));
                Some(Arrival::Joins)
            }
            Step::Leave { .. } | Step::Join => None,
        }
    }
}

impl Iterator for Load {
    type Item = (i64, usize, Arrival);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((at, number, step)) = self.steps.pop()?;
            if at >= self.scene.end_ms() {
                return None;
            }
            if let Some(arrival) = self.step(at, number, step) {
                return Some((at, number, arrival));
            }
        }
    }
}
